// SPDX-License-Identifier: MIT
//
// Local training: parameters averaged every H steps (engine/sync/local.h).
#include "engine/sync/local.h"

#include "apps/methods/method.h"
#include "layers/model_sizes.h"

namespace ab {
namespace {

constexpr const char* kName = "local";

void declare(std::vector<Setting>& settings) {
  auto s = method_section<LocalOptions>(settings, kName, "Local training (method local)");
  s.number("average_every", &LocalOptions::average_every, 1, 1e9,
           "H: every rank trains its own replica, and all average them after every so many steps");
}

std::unique_ptr<SyncStrategy> make(const TrainConfig& config, Layer& model, Comm& world, const LrSchedule&) {
  // No two ranks share gradients, so batch norms are shared by all ranks or by none.
  return std::make_unique<LocalStrategy>(replica_of(model, config.sync_bn == SyncBn::world), world,
                                         config.method_options.of<LocalOptions>());
}

MethodPlan plan(const TrainConfig& config, Layer& model, const PlannedRun& run) {
  const std::int64_t every = config.method_options.of<LocalOptions>().average_every;
  const ModelSizes sizes = sizes_of(model);
  MethodPlan plan{.traffic = plan_for_equal_ranks(run), .phases = {LocalStrategy::kSteps, LocalStrategy::kAverage}};
  TrafficCounter counter(run, plan.traffic, plan.traffic.classes[0]);
  counter.setup(sizes);
  counter.steps(LocalStrategy::kSteps, all_steps(run), {}, {.ranks = {0}});
  const std::int64_t averages = (run.total_steps + every - 1) / every;  // the last one wherever the run ends
  plan.times[LocalStrategy::kAverage] = averages;
  counter.set_phase(LocalStrategy::kAverage);
  counter.over_world(Collective::all_reduce, sizes.model_by_type, averages);
  counter.evaluations();
  std::int64_t between = 0;  // validations that do not follow an average
  const std::int64_t period = run.evaluation_period();
  for (std::int64_t step = period; step < run.total_steps; step += period) between += step % every != 0;
  counter.over_world(Collective::all_reduce, sizes.model_by_type, between);
  MemoryUse memory = memory_at_full_rank(sizes, run);
  memory.buckets = 0;
  plan.memory = {{"full rank", memory}};
  return plan;
}

}  // namespace

Method local_method() {
  return {.name = kName,
          .declare = declare,
          .make = make,
          .plan = plan,
          .laws = {.small = "average_every = 2",
                   .phases = {LocalStrategy::kSteps, LocalStrategy::kAverage},
                   .lossless = "average_every = 1",
                   .lossless_to_the_bit = false}};
}

}  // namespace ab
