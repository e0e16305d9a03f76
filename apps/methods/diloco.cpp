// SPDX-License-Identifier: MIT
//
// DiLoCo, plain and streaming (engine/sync/diloco.h).
#include "engine/sync/diloco.h"

#include <algorithm>

#include "apps/methods/method.h"
#include "apps/methods/preset.h"
#include "layers/model_sizes.h"

namespace ab {
namespace {

constexpr const char* kName = "diloco";

struct DilocoSettings : DilocoOptions {
  std::string preset = "default";

  bool operator==(const DilocoSettings&) const = default;
};

const DilocoSettings& settings_of(const TrainConfig& config) { return config.method_options.of<DilocoSettings>(); }

DilocoSettings paper() {
  DilocoSettings diloco;
  diloco.inner_steps = 500;
  diloco.outer_lr = 0.7;
  diloco.outer_momentum = 0.9;
  return diloco;
}

void declare(std::vector<Setting>& settings) {
  auto s = method_section<DilocoSettings>(settings, kName, "DiLoCo (method diloco)");
  declare_preset<DilocoSettings>(s, {{"default", {}}, {"paper", paper()}},
                                 "where the other diloco settings start from: our own choice for short runs, or the "
                                 "paper's for language models");

  s.number("inner_steps", &DilocoSettings::inner_steps, 1, 1e9,
           "H: steps that every rank trains its own replica before it takes part in an outer step");
  s.number("outer_lr", &DilocoSettings::outer_lr, 0, 100, "learning rate of the outer steps").above_low = true;
  s.number("outer_momentum", &DilocoSettings::outer_momentum, 0, 1, "their Nesterov momentum");
  s.number("fragments", &DilocoSettings::fragments, 1, 65536,
           "F: streaming: parts of the model that take turns in outer steps, one every H/F steps");
  s.number("overlap_steps", &DilocoSettings::overlap_steps, 0, 1e9,
           "streaming: steps that are computed while a fragment travels, less than H/F");
  s.number("mixing", &DilocoSettings::mixing, 0, 1,
           "streaming: share of the rank's own parameters that stays when a fragment arrives");
}

void check(const TrainConfig& config, Layer& model, int) {
  const DilocoOptions& options = settings_of(config);
  options.validate(sizes_of(model).gradients().size());
  AB_CHECK(config.ema_decay == 0 || (options.fragments == 1 && options.overlap_steps == 0 && options.mixing == 0),
           "--ema-decay averages models that all ranks hold, and while Streaming DiLoCo trains they never hold one");
}

std::unique_ptr<SyncStrategy> make(const TrainConfig& config, Layer& model, Comm& world, const LrSchedule&) {
  // No two ranks share gradients, so batch norms are shared by all ranks or by none.
  return std::make_unique<DilocoStrategy>(replica_of(model, config.sync_bn == SyncBn::world), world,
                                          settings_of(config), config.comm_dtype);
}

MethodPlan plan(const TrainConfig& config, Layer& model, const PlannedRun& run) {
  check(config, model, run.world_size);
  const DilocoOptions options = settings_of(config);
  const ModelSizes sizes = sizes_of(model);
  const std::vector<std::int64_t> elements = sizes.gradients();
  const std::vector<std::size_t> fragment_of = assign_fragments(elements, options.fragments);
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(options.fragments), 0);
  const auto on_wire = static_cast<std::int64_t>(size_of(config.comm_dtype));
  std::int64_t trained = 0, buffers = 0;
  for (std::size_t i = 0; i < elements.size(); ++i)
    bytes[fragment_of[i]] += on_wire * elements[i], trained += elements[i];
  for (const auto& [dtype, number] : sizes.buffers_by_type)
    buffers += number * static_cast<std::int64_t>(size_of(dtype));

  MethodPlan plan{.traffic = plan_for_equal_ranks(run), .phases = {DilocoStrategy::kSteps, DilocoStrategy::kOuter}};
  TrafficCounter counter(run, plan.traffic, plan.traffic.classes[0]);
  counter.setup(sizes);
  counter.steps(DilocoStrategy::kSteps, all_steps(run), {}, {.ranks = {0}});
  counter.set_phase(DilocoStrategy::kOuter);
  const RingMembers outer{counter.world().ranks, DilocoStrategy::kLabel};
  const DilocoEnd end(options, run.total_steps);
  const std::int64_t sent = (run.total_steps + options.overlap_steps) / options.round_steps();
  for (std::int64_t f = 0; f < options.fragments; ++f) {
    const auto at = static_cast<std::size_t>(f);
    const std::int64_t rounds = (sent + options.fragments - 1 - f) / options.fragments, partial = end.partial[at];
    for (const std::int64_t payload : {bytes[at], f + 1 == options.fragments ? buffers : 0}) {
      counter.in_flight(outer, payload, rounds, options.overlap_steps);
      counter.over(outer, Collective::all_reduce, payload, partial);
    }
    plan.times[DilocoStrategy::kOuter] += rounds + partial;
  }
  counter.evaluations();
  counter.over_world(Collective::all_reduce, sizes.buffers_by_type, run.evaluations() - 1);
  MemoryUse memory = memory_at_full_rank(sizes, run);
  memory.buckets = *std::max_element(bytes.begin(), bytes.end());
  memory.kept = 2 * 4 * trained;
  plan.memory = {{"full rank", memory}};
  return plan;
}

}  // namespace

Method diloco_method() {
  return {.name = kName,
          .declare = declare,
          .check = check,
          .make = make,
          .plan = plan,
          .laws = {{.small = "inner_steps = 4\nfragments = 2\noverlap_steps = 1\nmixing = 0.5",
                    .phases = {DilocoStrategy::kSteps, DilocoStrategy::kOuter},
                    .lossless = "inner_steps = 1\nouter_lr = 1\nouter_momentum = 0",
                    .lossless_to_the_bit = false}}};
}

}  // namespace ab
