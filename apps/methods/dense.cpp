// SPDX-License-Identifier: MIT
//
// Data-parallel training (engine/sync/dense.h). It has no settings of its own.
#include "engine/sync/dense.h"

#include "apps/methods/method.h"
#include "layers/model_sizes.h"

namespace ab {
namespace {

std::unique_ptr<SyncStrategy> average(const TrainConfig& config, Replica replica, Comm& world, const LrSchedule&) {
  return std::make_unique<DenseStrategy>(std::move(replica), world, gradient_wire(config));
}

MethodPlan plan(const TrainConfig&, Layer& model, const PlannedRun& run) {
  const ModelSizes sizes = sizes_of(model);
  MethodPlan plan{.traffic = plan_for_equal_ranks(run), .phases = {DenseStrategy::kPhase}};
  TrafficCounter counter(run, plan.traffic, plan.traffic.classes[0]);
  counter.setup(sizes);
  counter.steps(DenseStrategy::kPhase, all_steps(run), sizes.gradients(), counter.world());
  counter.evaluations();
  counter.over_world(Collective::all_reduce, sizes.buffers_by_type, run.evaluations());
  plan.memory = {{"full rank", memory_at_full_rank(sizes, run)}};
  return plan;
}

}  // namespace

Method dense_method() {
  return {.name = kBaseline,
          .average = average,
          .plan = plan,
          .laws = {{.phases = {DenseStrategy::kPhase}, .lossless = ""}}};
}

}  // namespace ab
