// SPDX-License-Identifier: MIT
//
// ACP-SGD (arXiv 2306.08881; engine/sync/acpsgd.h).
#include "apps/methods/acpsgd.h"

#include "apps/methods/compressed.h"
#include "layers/model_sizes.h"

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

MethodPlan plan(const TrainConfig& config, Layer& model, const PlannedRun& run) {
  const auto& options = config.method_options.of<AcpSgdSettings>();
  std::vector<std::int64_t> bytes, p_bytes, q_bytes;  // of gradients and of both factors, in the order of buckets
  std::int64_t all_p = 0, all_q = 0, whole = 0, rest = 0, grams = 0;
  const std::vector<Param*> params = inventory_of(model).params;
  for (auto it = params.rbegin(); it != params.rend(); ++it) {
    if (!(*it)->trainable()) continue;
    const auto [n, m, r] = acp_sizes((*it)->value.shape(), options);
    bytes.push_back(run.wire_bytes((*it)->numel()));
    p_bytes.push_back(r > 0 ? run.wire_bytes(r * n) : bytes.back());
    q_bytes.push_back(r > 0 ? run.wire_bytes(r * m) : bytes.back());
    if (r == 0) {
      rest += (*it)->numel();
      continue;
    }
    all_p += r * n, all_q += r * m, whole += n * m, grams += 2 * (r + 1) * (r + 1);
  }
  CompressedSteps compressed{.buckets = {{}, {}}};
  std::size_t begin = 0;
  for (const std::size_t end : bucket_ends(bytes, options.wire(run.gradients.dtype).bucket_bytes)) {
    PlannedBucket p{.gradients = static_cast<std::int64_t>(end - begin)}, q = p;
    for (; begin < end; ++begin) p.bytes += p_bytes[begin], q.bytes += q_bytes[begin];
    compressed.buckets[0].push_back(p);
    compressed.buckets[1].push_back(q);
  }
  compressed.work_bytes = 4 * (whole + rest);
  compressed.kept_bytes = 4 * (whole + 2 * (all_p + all_q) + std::max(all_p, all_q)) + 8 * grams;
  return plan_compressed(sizes_of(model), run, options.dense_steps, compressed);
}

}  // namespace

Method acpsgd_method() {
  return {.name = AcpSgdStrategy::kName,
          .declare = declare,
          .average = average,
          .plan = plan,
          .laws = {{.small = "rank = 2\ndense_steps = 3\nbucket_mb = 0.02",
                    .phases = {CompressedGradients::kWarmup, CompressedGradients::kCompressed},
                    .lossless = "dense_steps = 1000000"}}};
}

}  // namespace ab
