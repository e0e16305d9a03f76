// SPDX-License-Identifier: MIT
//
// ACP-SGD (arXiv 2306.08881; engine/sync/acpsgd.h).
#include "engine/sync/acpsgd.h"

#include <cmath>

#include "apps/methods/compressed.h"

namespace ab {
namespace {

void check(const TrainConfig& config, Layer&, int) {
  const double rank = config.of<AcpSgdOptions>().rank;
  AB_CHECK(rank < 1 || rank == std::floor(rank), "--acpsgd.rank {} is neither a whole number nor a share below 1",
           rank);
}

/// From the first step on, whatever can be factorised.
void release(TrainConfig& config) {
  AcpSgdOptions& options = config.of<AcpSgdOptions>() = {};
  options.min_rate = 0;
  config.dense_steps = 0;
}

void declare(std::vector<Setting>& settings) {
  auto s = method_section<AcpSgdOptions>(settings, AcpSgdStrategy::kName, "ACP-SGD (method acpsgd)");
  declare_gradient_rank(s);
  s.number("min_rate", &AcpSgdOptions::min_rate, 0, 1e9,
           "gradients whose factors are not so many times smaller than themselves, mean over both turns, are exchanged "
           "in full");
  s.number("bucket_mb", &AcpSgdOptions::bucket_mb, 0.001, 65536,
           "MiB of gradients whose factors travel in one bucket; more suits slow networks, less overlaps more");
}

std::unique_ptr<SyncStrategy> average(const TrainConfig& config, Replica replica, Comm& world,
                                      const LrSchedule& schedule) {
  return std::make_unique<AcpSgdStrategy>(std::move(replica), world, config.of<AcpSgdOptions>(),
                                          compression_start(config, schedule));
}

}  // namespace

Method acpsgd_method() {
  return {.name = AcpSgdStrategy::kName,
          .declare = declare,
          .presets = {{"release", "the authors' release for ResNet-50", release}},
          .check = check,
          .average = average,
          .dense_start = true};
}

}  // namespace ab
