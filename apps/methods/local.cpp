// SPDX-License-Identifier: MIT
//
// Local training: parameters averaged at the end of every round (engine/sync/local.h).
#include "apps/methods/local.h"

#include "apps/methods/method.h"
#include "apps/methods/nodes.h"
#include "apps/methods/preset.h"
#include "layers/model_sizes.h"

namespace ab {
namespace {

constexpr const char* kName = "local";

LocalSettings qsr_vit_b() {
  LocalSettings local;
  local.qsr_alpha = 0.0175;
  return local;
}

void declare(std::vector<Setting>& settings) {
  auto s = method_section<LocalSettings>(settings, kName, "Local training (method local)");
  declare_preset<LocalSettings>(s, {{"default", {}}, {"qsr-vit-b", qsr_vit_b()}},
                                "where the other local settings start from: our own choice, or what the authors of QSR "
                                "trained ViT-B on ImageNet with");

  s.number("average_every", &LocalSettings::average_every, 1, 1e9,
           "H: every rank trains its own replica, and all average them after every so many steps");
  s.number("every_step_until", &LocalSettings::every_step_until, 0, 1e15,
           "post-local: average after every step before this one");
  s.number("qsr_alpha", &LocalSettings::qsr_alpha, 0, 1e6,
           "QSR: rounds of (alpha / learning rate)^power steps where that is longer than H; about twice the peak rate "
           "with AdamW; 0: off");
  s.number("qsr_power", &LocalSettings::qsr_power, 0.1, 10, "that power");
  s.number("node_size", &LocalSettings::node_size, 0, 65536,
           "ranks that share a node and average their gradients in every step; 0: as --ranks-per-node");
}

NodeLayout layout_of(const TrainConfig& config, int world_size) {
  return node_layout(config, local_settings(config).node_size, world_size);
}

void check(const TrainConfig& config, Layer&, int world_size) {
  check_node_size(kName, local_settings(config).node_size, world_size);
}

std::unique_ptr<SyncStrategy> average(const TrainConfig& config, Replica replica, Comm& world,
                                      const LrSchedule& schedule) {
  LocalOptions options = local_settings(config);
  options.node_size = layout_of(config, world.size()).node_size;
  // Ranks that do not share gradients share batch norms with all or with none.
  if (config.sync_bn == SyncBn::group && options.node_size == 1) replica.batch_norms.clear();
  return std::make_unique<LocalStrategy>(std::move(replica), world, options, schedule, config.sync_bn,
                                         gradient_wire(config));
}

/// Rounds of the run or of a part, whose end cuts the last one short, and validations that do not follow an average.
struct Rounds {
  std::int64_t count = 0, evaluations_within = 0;

  Rounds(const LocalOptions& options, const PlannedRun& run) {
    const std::int64_t period = run.evaluation_period(), last = run.total_steps;
    for (std::int64_t begin = run.part.first_step; begin < last; ++count) {
      const std::int64_t end = std::min(last, begin + round_length(options, run.schedule, begin));
      evaluations_within += (end - 1) / period - begin / period;
      begin = end;
    }
  }
};

MethodPlan plan(const TrainConfig& config, Layer& model, const PlannedRun& run) {
  check(config, model, run.world_size);
  const NodeLayout layout = layout_of(config, run.world_size);
  const bool in_nodes = layout.node_size > 1;
  const ModelSizes sizes = sizes_of(model);
  const Rounds rounds(local_settings(config), run);
  MethodPlan plan{.traffic = plan_for_nodes(run, layout), .phases = {LocalStrategy::kSteps, LocalStrategy::kAverage}};
  for (RankClass& ranks : plan.traffic.classes) {
    TrafficCounter counter(run, plan.traffic, ranks);
    counter.setup(sizes);
    const RingMembers node{layout.members_of(layout.node_of(ranks.first)), NodeLayout::kLabel};
    counter.steps(LocalStrategy::kSteps, all_steps(run), in_nodes ? sizes.gradients() : std::vector<std::int64_t>{},
                  node);
    const auto average = [&](std::int64_t times) {
      if (config.comm_dtype == DType::float32) {
        counter.over_world(Collective::all_reduce, sizes.model_by_type, times);
        return;
      }
      counter.over_world(Collective::all_reduce, 2 * sizes.parameters(), times);
      counter.over_world(Collective::all_reduce, sizes.buffers_by_type, times);
    };
    counter.set_phase(LocalStrategy::kAverage);
    average(rounds.count);
    counter.evaluations();
    average(rounds.evaluations_within);
  }
  plan.times[LocalStrategy::kAverage] = rounds.count;
  MemoryUse memory = memory_at_full_rank(sizes, run);
  if (!in_nodes) memory.buckets = 0;
  if (config.comm_dtype != DType::float32) memory.kept = 4 * sizes.parameters();
  plan.memory = {{"full rank", memory}};
  return plan;
}

}  // namespace

Method local_method() {
  return {.name = kName,
          .declare = declare,
          .check = check,
          .average = average,
          .plan = plan,
          .drifts = true,
          .laws = {{.small = "average_every = 2\nqsr_alpha = 0.03\nnode_size = 0",
                    .phases = {LocalStrategy::kSteps, LocalStrategy::kAverage},
                    .lossless = "average_every = 1",
                    .lossless_to_the_bit = false,
                    .unusable_by_three = "node_size = 4"}}};
}

}  // namespace ab
