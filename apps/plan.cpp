// SPDX-License-Identifier: MIT
#include "apps/plan.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>

#include "ablowrank/split.h"
#include "apps/build_run.h"
#include "apps/evaluate.h"
#include "apps/run_folder.h"
#include "data/sampler.h"
#include "engine/io/atomic_file.h"
#include "engine/kernels/batch_norm.h"
#include "engine/sync/batch_norm_sync.h"

namespace ab {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

constexpr DataShape kDataShapes[] = {
    {"cifar10", 50000, 10000, 10, 32},
    {"cifar100", 50000, 10000, 100, 32},
    {"synthetic", 50000, 10000, 10, 32},
    {"imagenet", 1281167, 50000, 1000, 224},
};

/// The data set as training would cut it.
DataShape data_shape(const TrainConfig& config, const PlanOptions& options) {
  DataShape shape = known_data_shape(config.dataset);
  if (config.train_samples > 0) shape.train = std::min(shape.train, config.train_samples);
  if (config.val_samples > 0) shape.test = std::min(shape.test, config.val_samples);
  if (options.classes > 0) shape.classes = options.classes;
  if (config.image_size > 0) shape.image_size = config.image_size;
  return shape;
}

/// A run that was trained: how fast, and which ranks its weights had.
struct TrainedRun {
  Summary summary;
  std::vector<LayerRank> layers;
  bool from_folder = false;
};

/// The last split of metrics.jsonl tells more than summary.json, which holds the model as the run left it.
TrainedRun read_trained_run(const std::string& path) {
  if (std::filesystem::is_directory(path)) {
    Run run = read_run(path);
    return {run.summary, run.splits.empty() ? run.summary.per_layer : run.splits.back().layers, true};
  }
  const Summary summary = summary_from_json(read_file(path, ErrorKind::data), path);
  return {summary, summary.per_layer};
}

std::vector<std::int64_t> ranks_of(const TrainedRun& run, const std::vector<Weight*>& weights,
                                   const std::string& path) {
  std::vector<std::int64_t> ranks;
  bool any_cut = false;
  for (const Weight* weight : weights) {
    const auto at = std::find_if(run.layers.begin(), run.layers.end(),
                                 [&](const LayerRank& layer) { return layer.name == weight->name(); });
    AB_CHECK(at != run.layers.end() && at->m == weight->m() && at->n == weight->n(),
             "--ranks-from {} tells no rank of {} ({}×{}): it is the run of another model", path,
             weight->name(), weight->m(), weight->n());
    ranks.push_back(at->r);
    any_cut |= at->r < at->n;
  }
  AB_CHECK(any_cut || run.from_folder || weights.empty(),
           "--ranks-from {} describes a model that was left at full rank; give its run folder, whose "
           "metrics.jsonl has the "
           "ranks of its splits",
           path);
  return ranks;
}

/// The rank r of every weight after a cut.
std::vector<std::int64_t> planned_ranks(const RankPolicy& policy, const std::vector<Weight*>& weights) {
  AB_CHECK(
      policy.kind == RankPolicy::Kind::ratio || policy.kind == RankPolicy::Kind::fixed,
      "the rank policies sigma-cutoff and energy choose r from the singular values of a trained model; give "
      "--ratio, or --ranks-from with a run, to plan with");
  std::vector<std::int64_t> ranks;
  for (const Weight* weight : weights)
    ranks.push_back(policy.choose(std::vector<double>(static_cast<std::size_t>(weight->n()), 1.0)));
  return ranks;
}

/// Statistics of batch norm that ranks share: float64 sums in every forward, and in every backward.
void add_sync_bn(const TrainConfig& config, Layer& model, PlannedRun& run) {
  if (config.sync_bn == "off") return;
  const auto over =
      config.sync_bn == "group" ? ExtraCollective::Over::gradients : ExtraCollective::Over::world;
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
  run.steps_per_epoch = updates_per_epoch(config, sampler.batches_per_epoch());
  AB_CHECK(run.steps_per_epoch >= 1, "{} images are less than one batch of {} for each of {} ranks",
           data.train, config.batch_size, world_size);
  run.total_steps = total_steps(config, run.steps_per_epoch);
  run.eval_every = config.eval_every;
  const std::int64_t left_over = sampler.batches_per_epoch() % config.accumulate;
  run.micro_batches = config.accumulate;
  run.last_micro_batches = left_over > 0 ? left_over : config.accumulate;
  run.bucket_bytes = make_ab_options(config).bucket_bytes;
  run.moments_per_parameter = make_optimizer(config, {})->moments_per_parameter();
  run.averages_weights = config.ema_decay > 0;
  // What the program does beside the method: settings and images are compared at the start, an evaluation adds up
  // its sums (a second one with averaged weights), and ranks ask each other whether to stop.
  run.at_setup.push_back({.what = Collective::all_gather, .bytes = std::int64_t{8} * world_size, .times = 2});
  const std::int64_t evaluations = config.ema_decay > 0 ? 2 : 1;
  run.every_evaluation.push_back({.bytes = kEvaluationBytes, .times = evaluations});
  ExtraCollective ask{.bytes = StopAgreement::kBytes, .label = StopAgreement::kLabel, .phase = StopAgreement::kLabel};
  run.every_step.push_back(ask);
  ask.times = evaluations * evaluation_batches(data.test, data.image_size, world_size);
  run.every_evaluation_but_last.push_back(ask);
  add_sync_bn(config, model, run);
  return run;
}

std::vector<LayerRank> final_ranks(Layer& model, const PlannedRun& run, const Timetable& table) {
  const bool ends_with_factors = table.last_stage >= 0 && run.ab->final_model == FinalModel::factors;
  const std::vector<Weight*> eligible = eligible_weights(model);
  std::vector<LayerRank> layers;
  for (const Weight* w : inventory_of(model).weights) {
    const auto at = std::find(eligible.begin(), eligible.end(), w);
    std::int64_t r = w->n();
    if (ends_with_factors && at != eligible.end()) {
      const std::int64_t cut = run.cut_ranks[static_cast<std::size_t>(at - eligible.begin())];
      if (factors_are_smaller(*w, cut)) r = cut;
    }
    layers.push_back({w->name(), w->m(), w->n(), r});
  }
  return layers;
}

void describe_parameters(Layer& model, Summary& summary) {
  for (const Param* p : inventory_of(model).params) summary.parameters_full += p->numel();
  summary.parameters_final = summary.parameters_full;
  for (const LayerRank& layer : summary.per_layer)
    if (layer.r < layer.n) summary.parameters_final += layer.r * (layer.m + layer.n) - layer.m * layer.n;
  summary.compression_ratio =
      static_cast<double>(summary.parameters_full) / static_cast<double>(summary.parameters_final);
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
                  const TrafficPlan& plan) {
  const Timetable& table = plan.timetable;
  Summary summary;
  summary.method = config.method;
  summary.model = config.model;
  summary.dataset = config.dataset;
  summary.world_size = run.world_size;
  summary.steps = table.total_steps;
  summary.epochs = table.epochs;
  summary.seed = config.seed;
  summary.train_seconds = summary.images_per_second = kNone;
  summary.final_val_loss = summary.final_val_top1 = summary.final_val_top5 = summary.best_val_top1 = kNone;
  summary.average_val_top1 = kNone;
  summary.val_samples = data.test;
  for (const PlannedSteps& steps : plan.classes[0].steps) summary.steps_by_phase[steps.phase] += steps.steps;
  summary.per_layer = final_ranks(model, run, table);
  describe_parameters(model, summary);
  describe_traffic(plan, summary);
  return summary;
}

std::map<std::string, PhaseTraffic> traffic_by_phase(const TrafficPlan& plan, const PlannedRun& run,
                                                     const Summary& summary) {
  std::map<std::string, PhaseTraffic> phases;
  std::map<std::string, double> bytes[2], ranks[2];  // of those that train A, B
  for (const RankClass& some : plan.classes)
    for (const auto& [phase, entry] : some.ledger.by_phase()) {
      const double share = some.count / static_cast<double>(plan.class_of_rank.size());
      PhaseTraffic& traffic = phases[phase];
      traffic.payload += share * static_cast<double>(entry.payload_bytes);
      traffic.intra_node += share * entry.intra_node_wire_bytes;
      traffic.inter_node += share * entry.inter_node_wire_bytes;
      if (!some.group || some.group->alternates) continue;
      const auto factor = static_cast<std::size_t>(some.group->trains);
      bytes[factor][phase] += some.count * entry.wire_bytes();
      ranks[factor][phase] += some.count;
    }
  const Timetable& table = plan.timetable;
  std::map<std::string, std::int64_t> times(summary.steps_by_phase);
  times["setup"] = 1;
  times[StopAgreement::kLabel] = table.total_steps;
  times["evaluation"] = table.evaluations();
  for (const LowRankStage& stage : table.low_rank)
    times["split"] += stage.splits, times["sync"] += stage.syncs;
  if (table.last_stage >= 0) ++times["sync"], times["split"] += run.ab->final_model == FinalModel::factors;
  for (auto& [phase, traffic] : phases) {
    traffic.times = times[phase];
    traffic.wire_a = ranks[0].contains(phase) ? bytes[0][phase] / ranks[0][phase] : kNone;
    traffic.wire_b = ranks[1].contains(phase) ? bytes[1][phase] / ranks[1][phase] : kNone;
  }
  return phases;
}

DenseRun dense_run(Layer& model, PlannedRun run, std::int64_t gradient_element_bytes, const LinkModel& links,
                   double batch_seconds) {
  run.ab.reset();
  run.gradient_element_bytes = gradient_element_bytes;
  const TrafficPlan plan = plan_traffic(model, run);
  const LedgerEntry total = plan.classes[0].ledger.total();
  DenseRun dense{total.wire_bytes(), total.inter_node_wire_bytes, {}};
  for (const auto& [phase, time] : plan_time(plan, links, batch_seconds)) {
    dense.time.communication += time.communication;
    dense.time.hidden += time.hidden;
  }
  return dense;
}

std::vector<MemoryRow> memory_rows(Layer& model, const PlannedRun& run, const TrafficPlan& plan) {
  std::vector<MemoryRow> rows{{"full rank", memory_at_full_rank(model, run)}};
  bool trains[2] = {false, false}, alternates = false;
  for (const RankClass& ranks : plan.classes) {
    if (!ranks.group) return rows;
    alternates |= ranks.group->alternates;
    trains[static_cast<int>(ranks.group->trains)] = true;
  }
  for (const bool cut : {false, true}) {
    const auto& stages = plan.timetable.low_rank;
    if (std::none_of(stages.begin(), stages.end(), [&](const LowRankStage& s) { return s.cut == cut; }))
      continue;
    for (const Factor factor : {Factor::a, Factor::b})
      if (alternates || trains[static_cast<int>(factor)])
        rows.push_back({fmt::format("low-rank{}, {}", cut ? "" : " uncut", factor == Factor::a ? "A" : "B"),
                        memory_with_factors(model, run, factor, cut, alternates)});
  }
  return rows;
}

double step_seconds(const TrainConfig& config, const PlanOptions& options,
                    const std::optional<TrainedRun>& trained) {
  if (options.step_milliseconds > 0) return options.step_milliseconds / 1000;
  if (!trained || !(trained->summary.images_per_second > 0)) return 0;
  return static_cast<double>(config.batch_size * config.accumulate) * trained->summary.world_size /
         trained->summary.images_per_second;
}

}  // namespace

const DataShape& known_data_shape(const std::string& dataset) {
  const auto at = std::find_if(std::begin(kDataShapes), std::end(kDataShapes),
                               [&](const DataShape& shape) { return dataset == shape.name; });
  AB_CHECK(at != std::end(kDataShapes), "the sizes of data set {} are not known to a plan", dataset);
  return *at;
}

RunPlan plan_run(const TrainConfig& config, const PlanOptions& options) {
  AB_CHECK(options.ratio <= 0 || config.method == "ab",
           "--ratio is a setting of AB-training; give --method ab too");
  const DataShape data = data_shape(config, options);
  const int world_size = options.world_size > 0 ? options.world_size : config.ranks;
  ModelSpec spec = make_model_spec(config, data.classes, data.image_size);
  spec.draw = false;
  const std::unique_ptr<Layer> model = make_model(spec);
  mark_always_sync(config.ab.always_sync, *model);
  std::optional<TrainedRun> trained;
  if (!options.ranks_from.empty()) trained = read_trained_run(options.ranks_from);

  PlannedRun run = describe_run(config, data, world_size, *model);
  RunPlan plan;
  if (config.method == "ab") {
    run.ab = make_ab_options(config);
    if (options.ratio > 0)
      run.ab->rank_policy.kind = RankPolicy::Kind::ratio, run.ab->rank_policy.ratio = options.ratio;
    const std::vector<Weight*> eligible = eligible_weights(*model);
    run.cut_ranks = trained ? ranks_of(*trained, eligible, options.ranks_from)
                            : planned_ranks(run.ab->rank_policy, eligible);
    for (std::size_t i = 0; i < eligible.size(); ++i)
      plan.cut_ranks.push_back({eligible[i]->name(), eligible[i]->m(), eligible[i]->n(), run.cut_ranks[i]});
  }
  const TrafficPlan traffic = plan_traffic(*model, run);

  plan.summary = summarise(config, data, *model, run, traffic);
  plan.ranks_per_node = run.ranks_per_node;
  plan.steps_per_epoch = run.steps_per_epoch;
  plan.evaluations = traffic.timetable.evaluations();
  plan.batch_size = config.batch_size;
  plan.traffic = traffic_by_phase(traffic, run, plan.summary);
  for (const char* phase : {"setup", "full", "warmup", "split", "low-rank", "sync", "rebound", "evaluation",
                            StopAgreement::kLabel})
    if (plan.traffic.contains(phase)) plan.phases.push_back(phase);
  plan.memory = memory_rows(*model, run, traffic);
  plan.links = options.links;
  plan.step_seconds = step_seconds(config, options, trained);
  const double batch_seconds = plan.step_seconds / static_cast<double>(config.accumulate);
  plan.dense_float32 = dense_run(*model, run, 4, plan.links, batch_seconds);
  plan.dense_bfloat16 = dense_run(*model, run, 2, plan.links, batch_seconds);
  plan.time = plan_time(traffic, options.links, batch_seconds);
  return plan;
}

}  // namespace ab
