// SPDX-License-Identifier: MIT
#include "apps/methods/compressed.h"

#include <algorithm>
#include <numeric>

namespace ab {
namespace {

StepCount steps_between(std::int64_t begin, std::int64_t end, const PlannedRun& run) {
  return {end - begin, end / run.steps_per_epoch - begin / run.steps_per_epoch};
}

}  // namespace

CompressionStart compression_start(const TrainConfig& config, std::int64_t warmup_steps, const LrSchedule& schedule) {
  return {.warmup_steps = dense_steps(warmup_steps, schedule.total_steps),
          .gradients = gradient_wire(config),
          .seed = config.seed};
}

MethodPlan plan_compressed(const ModelSizes& sizes, const PlannedRun& run, std::int64_t warmup_steps,
                           const CompressedSteps& compressed) {
  constexpr const char *kWarmup = CompressedGradients::kWarmup, *kCompressed = CompressedGradients::kCompressed;
  run.check();
  const std::int64_t dense = std::min(run.total_steps, dense_steps(warmup_steps, run.total_steps));
  MethodPlan plan{.traffic = plan_for_equal_ranks(run), .phases = {kWarmup, kCompressed}};
  TrafficCounter counter(run, plan.traffic, plan.traffic.classes[0]);
  counter.setup(sizes);
  counter.steps(kWarmup, steps_between(0, dense, run), sizes.gradients(), counter.world());
  counter.steps(kCompressed, steps_between(dense, run.total_steps, run), compressed.rest, counter.world());
  if (run.total_steps > dense) {
    counter.set_phase(kCompressed);
    compressed.count(counter, run.total_steps - dense);
  }
  counter.evaluations();
  counter.over_world(Collective::all_reduce, sizes.buffers_by_type, run.evaluations());
  const MemoryUse whole = memory_at_full_rank(sizes, run);
  MemoryUse use = whole;
  use.buckets = 4 * std::accumulate(compressed.rest.begin(), compressed.rest.end(), std::int64_t{0}) +
                compressed.work_bytes;
  use.kept += compressed.kept_bytes;
  if (dense > 0) plan.memory.push_back({kWarmup, whole});
  if (run.total_steps > dense) plan.memory.push_back({kCompressed, use});
  return plan;
}

}  // namespace ab
