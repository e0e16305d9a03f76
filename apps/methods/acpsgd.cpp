// SPDX-License-Identifier: MIT
//
// ACP-SGD (arXiv 2306.08881; engine/sync/acpsgd.h).
#include "apps/methods/acpsgd.h"

#include "apps/methods/compressed.h"

namespace ab {
namespace {

/// Those of the authors' release for ResNet-50: from the first step on, whatever can be factorised.
AcpSgdSettings release() {
  AcpSgdSettings settings;
  settings.min_rate = 0;
  settings.dense_steps = 0;
  return settings;
}

void declare(std::vector<Setting>& settings) {
  auto s = method_section<AcpSgdSettings>(settings, AcpSgdStrategy::kName, "ACP-SGD (method acpsgd)");
  declare_preset<AcpSgdSettings>(s, {{"default", {}}, {"release", release()}},
                                 "where the other acpsgd settings start from: our own choice, or what the authors "
                                 "released for ResNet-50");
  declare_gradient_rank(s);
  s.number("min_rate", &AcpSgdSettings::min_rate, 0, 1e9,
           "gradients whose factors are not so many times smaller than themselves, mean over both turns, are exchanged "
           "in full");
  s.number("bucket_mb", &AcpSgdSettings::bucket_mb, 0.001, 65536,
           "MiB of gradients whose factors travel in one bucket; more suits slow networks, less overlaps more");
  declare_dense_steps(s);
}

std::unique_ptr<SyncStrategy> average(const TrainConfig& config, Replica replica, Comm& world,
                                      const LrSchedule& schedule) {
  const auto& options = config.method_options.of<AcpSgdSettings>();
  return std::make_unique<AcpSgdStrategy>(std::move(replica), world, options,
                                          compression_start(config, options.dense_steps, schedule));
}

}  // namespace

Method acpsgd_method() { return {.name = AcpSgdStrategy::kName, .declare = declare, .average = average}; }

}  // namespace ab
