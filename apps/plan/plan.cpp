// SPDX-License-Identifier: MIT
#include "apps/plan/plan.h"

#include "apps/plan/activations.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <optional>

#include "apps/config/run_wiring.h"
#include "apps/model_file/model_file.h"
#include "apps/train/build_run.h"
#include "apps/train/evaluate.h"
#include "apps/train/run_folder.h"
#include "data/datasets.h"
#include "data/sampler.h"
#include "engine/core/atomic_file.h"
#include "engine/core/memory.h"
#include "engine/core/our_words.h"
#include "engine/kernels/batch_norm.h"
#include "engine/plan/method_plan.h"
#include "engine/sync/batch_norm_sync.h"
#include "layers/model_sizes.h"
#include "layers/weight.h"

namespace ab {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

/// A run that was trained: how fast, and which ranks its weights had.
struct TrainedRun {
  Summary summary;
  std::vector<std::vector<LayerRank>> splits;
  bool from_folder = false;
};

/// The splits of metrics.jsonl tell more than summary.json, which holds the model as the run left it.
TrainedRun read_trained_run(const std::string& path) {
  if (std::filesystem::is_directory(path)) {
    Run run = read_run(path);
    TrainedRun trained{run.summary, {}, true};
    for (const SplitMetrics& split : run.splits) trained.splits.push_back(split.layers);
    if (trained.splits.empty()) trained.splits.push_back(run.summary.per_layer);
    return trained;
  }
  const Summary summary = summary_from_json(read_file(path, ErrorKind::data), path);
  return {summary, {summary.per_layer}};
}

/// The ranks r that the method plans with.
AssumedR assumed_r(const PlanOptions& options, const std::optional<TrainedRun>& trained) {
  AssumedR assumed{.ratio = options.ratio, .run = options.factors_from};
  if (trained) assumed.splits = trained->splits, assumed.as_left = !trained->from_folder;
  if (trained && trained->from_folder) assumed.final_r = trained->summary.per_layer;
  return assumed;
}

/// Statistics of batch norm that ranks share: float64 sums in every forward, and in every backward.
void add_sync_bn(const TrainConfig& config, Layer& model, PlannedRun& run) {
  if (config.sync_bn == SyncBn::off) return;
  const auto over = config.sync_bn == SyncBn::group ? ExtraCollective::Over::gradients : ExtraCollective::Over::world;
  for (const BatchNormStats* stats : inventory_of(model).batch_norms) {
    const std::int64_t channels = stats->running_mean.numel();
    for (const std::int64_t sums : {forward_sums(channels), backward_sums(channels)})
      run.every_micro_batch.push_back(
          {.bytes = 8 * sums, .over = over, .least_ranks = 2, .label = BatchNormSync::kLabel});
  }
}

PlannedRun describe_run(const TrainConfig& config, const DataShape& data, int world_size, Layer& model) {
  const Sampler sampler{.count = data.train, .batch_size = config.batch_size, .world_size = world_size};
  PlannedRun run;
  run.world_size = world_size;
  run.ranks_per_node = config.ranks_per_node;
  run.wiring = planned_wiring(config);
  run.steps_per_epoch = steps_per_epoch(config, data.train, world_size);
  run.total_steps = total_steps(config, run.steps_per_epoch);
  run.schedule = make_schedule(config, run.steps_per_epoch);
  check_warm_up(config, run.schedule);
  run.eval_every = config.eval_every;
  const std::int64_t left_over = sampler.batches_per_epoch() % config.accumulate;
  run.micro_batches = config.accumulate;
  run.last_micro_batches = left_over > 0 ? left_over : config.accumulate;
  run.gradients = gradient_wire(config);
  run.moments_per_parameter = make_optimizer(config, {})->moments_per_parameter();
  run.averages_weights = config.ema_decay > 0;
  // What the program does beside the method: settings and images are compared at the start, an evaluation adds up
  // its sums (a second one with averaged weights), and ranks ask each other whether to stop.
  run.at_setup.push_back({.what = Collective::all_gather, .bytes = std::int64_t{8} * world_size, .times = 2});
  const std::int64_t evaluations = config.ema_decay > 0 ? 2 : 1;
  run.every_evaluation.push_back({.bytes = kEvaluationBytes, .times = evaluations});
  ExtraCollective ask{.bytes = StopAgreement::kBytes,
                      .label = StopAgreement::kLabel,
                      .phase = StopAgreement::kLabel,
                      .waited_for = StopAgreement::lag(config.accumulate)};
  run.every_step.push_back(ask);
  if (config.lars_share_rates) {
    const auto tensors = static_cast<std::int64_t>(sizes_of(model).gradients().size());
    run.every_step.push_back({.what = Collective::all_gather, .bytes = 4 * tensors});
  }
  ask.waited_for = 0;
  ask.times = evaluations * evaluation_batches(data.test, data.image_size, world_size);
  run.every_evaluation_but_last.push_back(ask);
  add_sync_bn(config, model, run);
  return run;
}

std::vector<LayerRank> final_r(Layer& model, const MethodPlan& plan) {
  std::vector<LayerRank> layers;
  for (const Weight* w : inventory_of(model).weights) {
    const auto at = std::find_if(plan.final_r.begin(), plan.final_r.end(),
                                 [&](const LayerRank& layer) { return layer.name == w->name(); });
    layers.push_back(at != plan.final_r.end() ? *at : LayerRank{w->name(), w->m(), w->n(), w->n()});
  }
  return layers;
}

/// `open`: only training can tell the ranks r.
void describe_parameters(Layer& model, bool open, Summary& summary) {
  for (const Param* p : inventory_of(model).params) summary.parameters_full += p->numel();
  summary.parameters_final = summary.parameters_full;
  for (const LayerRank& layer : summary.per_layer)
    if (layer.r < layer.n) summary.parameters_final += layer.r * (layer.m + layer.n) - layer.m * layer.n;
  const std::int64_t full = stored_numbers(model), saved = summary.parameters_full - summary.parameters_final;
  summary.compression_ratio = open ? kNone : static_cast<double>(full) / static_cast<double>(full - saved);
}

void describe_traffic(const TrafficPlan& plan, Summary& summary) {
  std::vector<std::vector<double>> row_of_class;
  for (const RankClass& ranks : plan.classes) row_of_class.push_back(traffic_row(ranks.ledger));
  std::vector<double> rows;
  for (const int index : plan.class_of_rank) {
    const std::vector<double>& row = row_of_class[static_cast<std::size_t>(index)];
    rows.insert(rows.end(), row.begin(), row.end());
  }
  std::vector<std::string> phases;
  for (const auto& [phase, entry] : plan.classes[0].ledger.by_phase()) phases.push_back(phase);
  set_traffic(rows, phases, summary);
}

Summary summarise(const TrainConfig& config, const DataShape& data, Layer& model, const PlannedRun& run,
                  const MethodPlan& plan) {
  Summary summary;
  summary.method = config.method;
  summary.model = config.model;
  summary.dataset = config.dataset;
  summary.world_size = run.world_size;
  summary.steps = run.total_steps;
  summary.epochs = run.epochs();
  summary.seed = config.seed;
  summary.train_seconds = summary.images_per_second = kNone;
  summary.final_val_loss = summary.final_val_top1 = summary.final_val_top5 = summary.best_val_top1 = kNone;
  summary.average_val_top1 = kNone;
  summary.train_samples = data.train;
  summary.val_samples = data.test;
  summary.train_classes = summary.val_classes = data.classes;
  for (const PlannedSteps& steps : plan.traffic.classes[0].steps) summary.steps_by_phase[steps.phase] += steps.steps;
  summary.per_layer = final_r(model, plan);
  describe_parameters(model, plan.least && find_method(config.method).has_ranks, summary);
  describe_traffic(plan.traffic, summary);
  return summary;
}

std::map<std::string, PhaseTraffic> traffic_by_phase(const MethodPlan& plan, const PlannedRun& run,
                                                     const Summary& summary) {
  std::map<std::string, PhaseTraffic> phases;
  std::map<std::string, std::map<std::string, double>> ranks;  // of a kind, by phase
  for (const RankClass& some : plan.traffic.classes)
    for (const auto& [phase, entry] : some.ledger.by_phase()) {
      const double share = some.count / static_cast<double>(run.world_size);
      PhaseTraffic& traffic = phases[phase];
      traffic.payload += share * static_cast<double>(entry.payload_bytes);
      traffic.intra_node += share * entry.intra_node_wire_bytes;
      traffic.inter_node += share * entry.inter_node_wire_bytes;
      if (some.kind.empty()) continue;
      traffic.wire_by_kind[some.kind] += some.count * entry.wire_bytes();
      ranks[phase][some.kind] += some.count;
    }
  std::map<std::string, std::int64_t> times(summary.steps_by_phase);
  times.insert(plan.times.begin(), plan.times.end());
  times["setup"] = 1;
  times[StopAgreement::kLabel] = run.total_steps;
  times["evaluation"] = run.evaluations();
  for (auto& [phase, traffic] : phases) {
    traffic.times = times[phase];
    for (auto& [kind, bytes] : traffic.wire_by_kind) bytes /= ranks[phase][kind];
  }
  return phases;
}

LeastTraffic least_traffic(const TrafficPlan& plan, int world_size) {
  LeastTraffic least;
  for (const RankClass& ranks : plan.classes) {
    const LedgerEntry total = ranks.ledger.total();
    least.wire += ranks.count * total.wire_bytes() / world_size;
    least.inter_node += ranks.count * total.inter_node_wire_bytes / world_size;
  }
  return least;
}

DenseRun dense_run(const TrainConfig& config, Layer& model, PlannedRun run, DType wire, const LinkModel& links,
                   double batch_seconds) {
  run.gradients.dtype = wire;
  const TrafficPlan plan = find_method(kBaseline).plan(config, model, run).traffic;
  const LedgerEntry total = plan.classes[0].ledger.total();
  DenseRun dense{total.wire_bytes(), total.inter_node_wire_bytes, {}};
  for (const auto& [phase, time] : plan_time(plan, links, batch_seconds)) {
    dense.time.communication += time.communication;
    dense.time.hidden += time.hidden;
  }
  return dense;
}

std::string methods_with_ranks() {
  std::vector<std::string> flags;
  for (const Method& method : methods())
    if (method.has_ranks) flags.push_back(fmt::format("--method {}", method.name));
  return fmt::format("{}", fmt::join(flags, " or "));
}

double step_seconds(const TrainConfig& config, const PlanOptions& options, const std::optional<TrainedRun>& trained) {
  if (options.step_milliseconds > 0) return options.step_milliseconds / 1000;
  if (!trained || !(trained->summary.images_per_second > 0)) return 0;
  return static_cast<double>(config.batch_size * config.accumulate) * trained->summary.world_size /
         trained->summary.images_per_second;
}

/// A plan without them is a plan all the same.
void measure_activations(const ModelSpec& spec, const TrainConfig& config, RunPlan& plan) {
  const std::int64_t left = memory({}).available();
  plan.not_measured = fmt::format("{:.0f} MB of memory are left", static_cast<double>(left) / 1e6);
  if (largest_memory(plan) >= left) return;
  try {
    plan.activation_bytes = config.batch_size * activation_bytes(spec, config, {});
    plan.not_measured.clear();
  } catch (const OutOfMemory&) {  // said above
  } catch (const std::exception& error) {
    plan.not_measured = in_our_words(error).what();
  }
}

}  // namespace

DataShape data_shape(const TrainConfig& config, std::int64_t classes) {
  DataShape shape = find_dataset(config.dataset).shape;
  if (config.train_samples > 0) shape.train = std::min(shape.train, config.train_samples);
  if (config.val_samples > 0) shape.test = std::min(shape.test, config.val_samples);
  if (classes > 0) shape.classes = classes;
  if (config.image_size > 0) shape.image_size = config.image_size;
  return shape;
}

std::int64_t largest_memory(const RunPlan& plan) {
  std::int64_t most = 0;
  for (const MemoryRow& row : plan.memory) most = std::max(most, row.use.total());
  return most;
}

RunPlan plan_run(const TrainConfig& config, const PlanOptions& options) {
  const Method& method = find_method(config.method);
  AB_CHECK(options.ratio <= 0 || method.has_ranks,
           "--ratio is about ranks r of factors, which {} does not have; give {} too", method.name,
           methods_with_ranks());
  const DataShape data = data_shape(config, options.classes);
  const int world_size = options.world_size > 0 ? options.world_size : config.ranks;
  ModelSpec spec = make_model_spec(config, data.classes, data.image_size);
  spec.draw = false;
  const std::unique_ptr<Layer> model = make_model(spec);
  std::optional<TrainedRun> trained;
  if (!options.factors_from.empty()) trained = read_trained_run(options.factors_from);
  AB_CHECK(!trained || trained->summary.method == method.name || !find_method(trained->summary.method).has_ranks,
           "--factors-from {} is a run by {}, and this is a plan of {}; give the run's config.toml as --config",
           options.factors_from, trained ? trained->summary.method : "", method.name);
  AB_CHECK(!trained || trained->summary.model == config.model,
           "--factors-from {} is a run of {}, and this is a plan of {}; give the run's config.toml as --config",
           options.factors_from, trained ? trained->summary.model : "", config.model);

  PlannedRun run = describe_run(config, data, world_size, *model);
  run.check();
  run.assumed = assumed_r(options, trained);
  if (!options.decisions_from.empty()) {
    AB_CHECK(method.decides, "--decisions-from is for methods whose training decides how much they send; {} does not",
             method.name);
    run.decisions = read_run(options.decisions_from).decisions;
    AB_CHECK(!run.decisions.empty(), "--decisions-from {}: that run has decided nothing", options.decisions_from);
  }
  const MethodPlan of_method = method.plan(config, *model, run);

  RunPlan plan;
  plan.summary = summarise(config, data, *model, run, of_method);
  plan.cut_r = of_method.cut_r;
  plan.ranks_per_node = run.ranks_per_node;
  plan.steps_per_epoch = run.steps_per_epoch;
  plan.evaluations = run.evaluations();
  plan.batch_size = config.batch_size;
  plan.traffic = traffic_by_phase(of_method, run, plan.summary);
  if (of_method.least) plan.least = least_traffic(*of_method.least, run.world_size);
  std::vector<std::string> phases{"setup"};
  phases.insert(phases.end(), of_method.phases.begin(), of_method.phases.end());
  phases.insert(phases.end(), {"evaluation", StopAgreement::kLabel});
  for (const std::string& phase : phases)
    if (plan.traffic.contains(phase)) plan.phases.push_back(phase);
  plan.memory = of_method.memory;
  if (options.activations) measure_activations(spec, config, plan);
  plan.all_reduce = run.wiring.all_reduce;
  plan.links = run.wiring.network.assumed_at(0);
  plan.step_seconds = step_seconds(config, options, trained);
  const double batch_seconds = plan.step_seconds / static_cast<double>(config.accumulate);
  plan.dense_float32 = dense_run(config, *model, run, DType::float32, plan.links, batch_seconds);
  plan.dense_bfloat16 = dense_run(config, *model, run, DType::bfloat16, plan.links, batch_seconds);
  plan.time = plan_time(of_method.traffic, plan.links, batch_seconds);
  return plan;
}

}  // namespace ab
