// SPDX-License-Identifier: MIT
#include "apps/methods/compressed.h"

#include <algorithm>

namespace ab {
namespace {

/// How many of 1 … count are turn · k + residue, k whole.
std::int64_t of_residue(std::int64_t count, std::int64_t residue, std::int64_t turns) {
  const std::int64_t first = residue == 0 ? turns : residue;
  return count < first ? 0 : (count - first) / turns + 1;
}

/// Of the steps [begin, end), those whose distance from `begin` is `turn` more than a multiple of `turns`.
StepCount steps_of_turn(std::int64_t begin, std::int64_t end, std::int64_t turn, std::int64_t turns,
                        const PlannedRun& run) {
  StepCount count{.steps = end - begin <= turn ? 0 : (end - begin - turn - 1) / turns + 1};
  // Epoch j ends with step j · steps_per_epoch − 1.
  for (std::int64_t residue = 0; residue < turns; ++residue)
    if ((residue * run.steps_per_epoch - 1 - begin - turn) % turns == 0)
      count.last_of_epoch += of_residue(end / run.steps_per_epoch, residue, turns) -
                             of_residue(begin / run.steps_per_epoch, residue, turns);
  return count;
}

}  // namespace

CompressionStart compression_start(const TrainConfig& config, std::int64_t asked, const LrSchedule& schedule) {
  return {
      .dense_steps = dense_steps(asked, schedule.total_steps), .gradients = gradient_wire(config), .seed = config.seed};
}

MethodPlan plan_compressed(const ModelSizes& sizes, const PlannedRun& run, std::int64_t asked,
                           const CompressedSteps& compressed) {
  constexpr const char *kWarmup = CompressedGradients::kWarmup, *kCompressed = CompressedGradients::kCompressed;
  run.check();
  const std::int64_t first = run.part.first_step, warmup = dense_steps(asked, run.whole_steps());
  const std::int64_t dense = std::clamp(warmup, first, run.total_steps);
  MethodPlan plan{.traffic = plan_for_equal_ranks(run), .phases = {kWarmup, kCompressed}};
  TrafficCounter counter(run, plan.traffic, plan.traffic.classes[0]);
  counter.setup(sizes);
  counter.steps(kWarmup, steps_of_turn(first, dense, 0, 1, run), sizes.gradients(), counter.world());
  const auto turns = static_cast<std::int64_t>(compressed.buckets.size());
  std::int64_t held = 0;  // buckets of all kinds are there all the time
  for (std::int64_t k = 0; k < turns; ++k) {
    const std::int64_t turn =
        (std::max<std::int64_t>(dense - warmup, 0) + k) % turns;  // counted from the end of the warm-up
    const std::vector<PlannedBucket>& buckets = compressed.buckets[static_cast<std::size_t>(turn)];
    counter.steps_of_buckets(kCompressed, steps_of_turn(dense, run.total_steps, k, turns, run), buckets,
                             counter.world(), compressed.after_backward);
    std::int64_t bytes = 0;
    for (const PlannedBucket& bucket : buckets) bytes += bucket.bytes;
    held += bucket_memory(4 * bytes / run.wire_bytes(1), run.gradients.dtype);
  }
  if (run.total_steps > dense && compressed.count) {
    counter.set_phase(kCompressed);
    compressed.count(counter, run.total_steps - dense);
  }
  counter.evaluations();
  counter.over_world(Collective::all_reduce, sizes.buffers_by_type, run.evaluations());
  const MemoryUse whole = memory_at_full_rank(sizes, run);
  MemoryUse use = whole;
  use.buckets = held + compressed.work_bytes;
  use.kept += compressed.kept_bytes;
  if (dense > first) plan.memory.push_back({kWarmup, whole});
  if (run.total_steps > dense) plan.memory.push_back({kCompressed, use});
  return plan;
}

}  // namespace ab
