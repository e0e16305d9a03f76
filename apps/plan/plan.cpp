// SPDX-License-Identifier: MIT
#include "apps/plan/plan.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>

#include "apps/settings/hardware.h"
#include "apps/train/build_run.h"
#include "apps/train/run_folder.h"
#include "apps/train/stop_request.h"
#include "data/crop.h"
#include "engine/core/precision.h"
#include "engine/core/threads.h"
#include "layers/weight.h"

namespace ab {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

/// A run that was trained: how fast, and which ranks its weights had.
struct TrainedRun {
  Summary summary;
  std::vector<std::vector<LayerRank>> splits{};
  bool from_folder = false;
};

/// The splits of metrics.jsonl tell more than summary.json, which holds the model as the run left it.
TrainedRun read_trained_run(const std::string& path) {
  TrainedRun trained{.summary = read_summary(path), .from_folder = std::filesystem::is_directory(path)};
  if (trained.from_folder)
    for (const SplitMetrics& split : read_run(path).splits) trained.splits.push_back(split.layers);
  if (trained.splits.empty()) trained.splits.push_back(trained.summary.per_layer);
  return trained;
}

/// The ranks r that the method plans with.
AssumedR assumed_r(const PlanOptions& options, const std::optional<TrainedRun>& trained) {
  AssumedR assumed{.ratio = options.ratio, .unknown_ratio = options.unknown_ratio, .run = options.factors_from};
  if (trained) assumed.splits = trained->splits, assumed.as_left = !trained->from_folder;
  if (trained && trained->from_folder) assumed.final_r = trained->summary.per_layer;
  return assumed;
}

RunFacts facts_of(const TrainConfig& config, const DataShape& data, int world_size) {
  constexpr std::int64_t kMostSteps = 1'000'000'000;
  RunFacts facts{.world_size = world_size};
  facts.schedule = make_schedule(config, steps_per_epoch(config, data.train, world_size));
  check_warm_up(config, facts.schedule);
  const std::int64_t steps = facts.schedule.total_steps;
  AB_CHECK(steps >= 1 && steps <= kMostSteps, "a run of {} steps cannot be planned; at most {} can", steps, kMostSteps);
  return facts;
}

/// As a plan has it, which no training has measured.
Summary summary_of_plan(const RehearsedRun& run, const TrainConfig& config, const DataShape& data) {
  Summary summary = summary_of(run);
  summary.dataset = config.dataset;
  summary.train_seconds = summary.images_per_second = kNone;
  summary.compression_seconds = summary.image_waiting_seconds = kNone;
  summary.flops_per_second = summary.peak_share = kNone;
  summary.waiting_seconds_by_phase.clear();
  summary.waiting_not_measured.clear();
  summary.final_val_loss = summary.final_val_top1 = summary.final_val_top5 = summary.best_val_top1 = kNone;
  summary.average_val_top1 = kNone;
  summary.views_val_top1 = kNone;
  summary.train_samples = data.train;
  summary.val_samples = data.test;
  summary.train_classes = summary.val_classes = data.classes;
  return summary;
}

/// Only training can tell the ranks r.
void leave_ranks_open(Layer& model, Summary& summary) {
  summary.parameters_final = summary.parameters_full;
  summary.compression_ratio = kNone;
  summary.per_layer.clear();
  for (const Weight* w : inventory_of(model).weights) summary.per_layer.push_back({w->name(), w->m(), w->n(), w->n()});
}

/// The name of a role in reports; empty: none.
std::string heading_of(const std::string& role) { return role.starts_with('.') ? "" : role; }

std::map<std::string, PhaseTraffic> traffic_by_phase(const RehearsedRun& run, const Summary& summary,
                                                     std::int64_t evaluations) {
  std::map<std::string, PhaseTraffic> phases;
  std::map<std::string, std::map<std::string, double>> ranks;  // of a role, by phase
  for (const RehearsedClass& some : run.classes)
    for (const auto& [phase, entry] : some.rank.ledger.by_phase()) {
      const double share = some.count / static_cast<double>(summary.world_size);
      PhaseTraffic& traffic = phases[phase];
      traffic.payload += share * static_cast<double>(entry.payload_bytes);
      traffic.intra_node += share * entry.intra_node_wire_bytes;
      traffic.inter_node += share * entry.inter_node_wire_bytes;
      const std::string heading = heading_of(some.role);
      if (heading.empty()) continue;
      traffic.wire_by_kind[heading] += some.count * entry.wire_bytes();
      ranks[phase][heading] += some.count;
    }
  std::map<std::string, std::int64_t> times(summary.steps_by_phase);
  times["setup"] = 1;
  times[StopAgreement::kLabel] = summary.steps;
  times["evaluation"] = evaluations;
  const std::map<std::string, std::int64_t> others = run.classes.front().rank.times();
  times.insert(others.begin(), others.end());
  for (auto& [phase, traffic] : phases) {
    traffic.times = times[phase];
    for (auto& [kind, bytes] : traffic.wire_by_kind) bytes /= ranks[phase][kind];
  }
  return phases;
}

/// The phases that send anything, in the order of a run; those of no method come last.
std::vector<std::string> phases_in_order(const RehearsedRun& run) {
  std::vector<std::string> phases{"setup"};
  const std::set<std::string> last{"evaluation", StopAgreement::kLabel};
  const RehearsedRank& rank = run.classes.front().rank;
  const auto add = [&](const std::string& phase) {
    if (!last.contains(phase) && std::ranges::find(phases, phase) == phases.end()) phases.push_back(phase);
  };
  for (const RehearsedPart& part : rank.parts) {
    const std::map<std::string, LedgerEntry> sent = part.ledger.by_phase();
    if (part.micro_batches > 0 && sent.contains(part.phase)) add(part.phase);
    for (const auto& [phase, entry] : sent) add(phase);
  }
  for (const char* phase : {"evaluation", StopAgreement::kLabel})
    if (rank.ledger.by_phase().contains(phase)) phases.emplace_back(phase);
  return phases;
}

/// By phase, and by role where ranks of several hold other things.
std::vector<PhaseMemory> memory_rows(const std::vector<RehearsedRun>& runs) {
  std::vector<std::string> phases;
  std::map<std::string, std::map<std::string, MemoryUse>> most;  // by phase and heading
  for (const RehearsedRun& run : runs)
    for (const RehearsedClass& ranks : run.classes)
      for (const RehearsedPart& part : ranks.rank.parts) {
        if (part.micro_batches == 0) continue;
        if (!most.contains(part.phase)) phases.push_back(part.phase);
        MemoryUse& use = most[part.phase][heading_of(ranks.role)];
        if (part.memory.total() > use.total()) use = part.memory;
      }
  std::vector<PhaseMemory> rows;
  for (const std::string& phase : phases) {
    const auto& of_phase = most.at(phase);
    const MemoryUse& first = of_phase.begin()->second;
    const bool alike = std::ranges::all_of(of_phase, [&](const auto& use) { return use.second == first; });
    if (alike) rows.push_back({phase, first});
    else
      for (const auto& [heading, use] : of_phase)
        rows.push_back({heading.empty() ? phase : phase + ", " + heading, use});
  }
  return rows;
}

std::vector<RehearsedRun> rehearse_all(const std::vector<Told>& runs, const TrainConfig& config, const DataShape& data,
                                       int world_size) {
  std::vector<RehearsedRun> rehearsed;
  for (const Told& told : runs)
    rehearsed.push_back(rehearse(told.config.value_or(config), data, world_size, told.unknowns));
  return rehearsed;
}

/// The run that sends most, or least, with what any of them does in each phase.
RehearsedRun extreme_of(std::vector<RehearsedRun> runs, bool most) {
  const auto exceeds = [most](double a, double b) { return most ? a > b : a < b; };
  std::size_t best = 0;
  for (std::size_t i = 1; i < runs.size(); ++i)
    if (exceeds(summary_of(runs[i]).sent_bytes_per_rank_total, summary_of(runs[best]).sent_bytes_per_rank_total))
      best = i;
  RehearsedRun extreme = std::move(runs[best]);
  runs.erase(runs.begin() + static_cast<std::ptrdiff_t>(best));
  for (const RehearsedRun& run : runs)
    for (std::size_t c = 0; c < extreme.classes.size(); ++c) {
      const auto first = std::ranges::find(extreme.class_of_rank, static_cast<int>(c)) - extreme.class_of_rank.begin();
      const Ledger& other =
          run.classes[static_cast<std::size_t>(run.class_of_rank[static_cast<std::size_t>(first)])].rank.ledger;
      Ledger& own = extreme.classes[c].rank.ledger;
      for (const auto& [phase, entry] : own.by_phase())
        if (exceeds(other.total_of_phase(phase).sent_bytes(), entry.sent_bytes())) own.replace_phase(phase, other);
    }
  return extreme;
}

/// The same run by the baseline.
DenseRun dense_run(TrainConfig config, const DataShape& data, int world_size, DType wire, const LinkModel& links,
                   double seconds) {
  config.method = kBaseline;
  config.comm_dtype = wire;
  const RehearsedRun run = rehearse(config, data, world_size, {});
  const LedgerEntry total = run.classes[0].rank.ledger.total();
  DenseRun dense{total.wire_bytes(), total.inter_node_wire_bytes, {}};
  for (const auto& [phase, time] : replay(run, links, seconds)) {
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

/// 0: the run does not tell.
double measured_step_seconds(const TrainConfig& config, const Summary& run) {
  if (!(run.images_per_second > 0)) return 0;
  return static_cast<double>(config.batch_size * config.accumulate) * run.world_size / run.images_per_second;
}

double step_seconds(const TrainConfig& config, const PlanOptions& options, const std::optional<TrainedRun>& trained) {
  if (options.step_milliseconds > 0) return options.step_milliseconds / 1000;
  return trained ? measured_step_seconds(config, trained->summary) : 0;
}

/// Of products and convolutions in a step of dense training on one rank, with images of several sizes on average.
double flops_of_step(TrainConfig config, const PlanOptions& options) {
  config.method = kBaseline;
  if (config.image_sizes.empty()) config.epochs = 0, config.steps = 1;
  config.warmup_epochs = 0, config.warmup_steps = 0;
  double flops = 0, steps = 0;
  const int ranks =
      config.image_sizes.empty() ? 1 : std::max(1, options.world_size > 0 ? options.world_size : config.ranks);
  for (const RehearsedPart& part : rehearse_rank(config, data_shape(config, options.classes), 0, ranks, {}).parts) {
    if (part.micro_batches == 0) continue;
    flops += static_cast<double>(part.flops) * static_cast<double>(part.times);
    steps += static_cast<double>(part.times);
  }
  return flops / steps;
}

/// The run that a plan is about.
struct AskedRun {
  DataShape data;
  int world_size = 1;
  std::unique_ptr<Layer> model{};  // dense, for its names and shapes
  std::optional<TrainedRun> trained{};
  RunFacts facts{};
  MayBecome runs{};
};

AskedRun asked_run(const TrainConfig& config, const PlanOptions& options) {
  const Method& method = find_method(config.method);
  AB_CHECK(options.ratio <= 0 || method.has_ranks,
           "--ratio is about ranks r of factors, which {} does not have; give {} too", method.name,
           methods_with_ranks());
  AskedRun run{.data = data_shape(config, options.classes),
               .world_size = options.world_size > 0 ? options.world_size : config.ranks};
  check_image_sizes(config);
  ModelSpec spec = make_model_spec(config, run.data.classes, run.data.image_size);
  spec.draw = false;
  run.model = make_model(spec, shapes_for(config));
  std::optional<TrainedRun>& trained = run.trained;
  if (!options.factors_from.empty()) trained = read_trained_run(options.factors_from);
  AB_CHECK(!trained || trained->summary.method == method.name ||
               (!method.has_ranks && !find_method(trained->summary.method).has_ranks),
           "--factors-from {} is a run by {}, and this is a plan of {}; give the run's config.toml as --config",
           options.factors_from, trained ? trained->summary.method : "", method.name);
  AB_CHECK(!trained || trained->summary.model == config.model,
           "--factors-from {} is a run of {}, and this is a plan of {}; give the run's config.toml as --config",
           options.factors_from, trained ? trained->summary.model : "", config.model);

  RunFacts& facts = run.facts = facts_of(config, run.data, run.world_size);
  facts.assumed = assumed_r(options, trained);
  if (!options.decisions_from.empty()) {
    AB_CHECK(method.decides, "--decisions-from is for methods whose training decides how much they send; {} does not",
             method.name);
    facts.decisions = read_run(options.decisions_from).decisions;
    AB_CHECK(!facts.decisions.empty(), "--decisions-from {}: that run has decided nothing", options.decisions_from);
  }
  if (method.check) method.check(config, *run.model, run.world_size);
  run.runs = method.told ? method.told(config, *run.model, facts) : MayBecome{};
  return run;
}

double whole_updates_of(const RehearsedRank& rank) {
  double micro_batches = 0, most = 1;
  for (const RehearsedPart& part : rank.parts) {
    micro_batches += static_cast<double>(part.times * part.micro_batches);
    most = std::max(most, static_cast<double>(part.micro_batches));
  }
  return micro_batches / most;
}

}  // namespace

double RunPlan::exposed_seconds() const {
  double seconds = 0;
  for (const auto& [phase, of_phase] : time) seconds += of_phase.exposed();
  return seconds;
}

double RunPlan::run_seconds() const { return step_seconds * whole_updates + exposed_seconds(); }

DataShape data_shape(const TrainConfig& config, std::int64_t classes) {
  DataShape shape = find_dataset(config.dataset).shape;
  if (config.train_samples > 0) shape.train = std::min(shape.train, config.train_samples);
  if (config.val_samples > 0) shape.test = std::min(shape.test, config.val_samples);
  if (config.val_from_train > 0) {
    shape.train = left_to_train(shape.train, config.val_from_train);
    shape.test = config.val_from_train;
  }
  if (classes > 0) shape.classes = classes;
  if (config.image_size > 0) shape.image_size = config.image_size;
  return shape;
}

namespace {

constexpr int kImageHeight = 375, kImageWidth = 500;
constexpr double kImageBytes = kImageHeight * kImageWidth * 3;

/// Of an image, as the crops of training take it on average (ImageTransform::part_seen()).
double seen_bytes(const TrainConfig& config) {
  if (!config.augment || config.shift > 0) return kImageBytes;
  constexpr int kDraws = 10'000;
  double pixels = 0;
  for (int i = 0; i < kDraws; ++i) {
    const Box box = draw_resized_crop({.sample = i}, kImageHeight, kImageWidth, config.framing.min_area).box;
    pixels += box.height * box.width;
  }
  return 3 * pixels / kDraws;
}

}  // namespace

ImagePlan plan_images(const TrainConfig& config, std::int64_t images, int nodes) {
  constexpr double kFileBytes = 110e3;
  const bool apart = config.cache_share == CacheShare::node, together = config.cache_share == CacheShare::world;
  const double all = static_cast<double>(images), n = nodes;
  const double in_memory = std::floor(config.cache_gb * 1e9 / kImageBytes);  // of a node
  const double kept = apart || together ? n * std::min(in_memory, all / n) : std::min(in_memory, all);
  ImagePlan plan;
  plan.from_nodes = together ? kept * (n - 1) / n : 0;
  plan.from_memory = kept - plan.from_nodes;
  if (plan.from_nodes > 0) plan.bytes_from_nodes = plan.from_nodes * seen_bytes(config);
  plan.bytes_of_node = (apart || together ? all / n : all) * kImageBytes;
  plan.files_when_off = all - std::min(in_memory, all);
  plan.file_bytes = kFileBytes, plan.nodes = nodes;
  if (!config.cache_disk.empty()) {
    const double domain =
        apart ? all / n : all;  // of a node, of which its disk takes what comes first, as its memory does
    const double on_disk =
        config.cache_disk_gb > 0 ? std::min(config.cache_disk_gb * 1e9 / kFileBytes, domain) : domain;
    plan.from_disk = together ? (all - kept) * on_disk / domain : std::max(0.0, on_disk / domain * all - kept);
  }
  plan.from_files = all - kept - plan.from_disk;
  return plan;
}

NeededMemory needed_memory(const TrainConfig& config, const PlanOptions& options) {
  const AskedRun run = asked_run(config, options);
  const std::vector<RehearsedRun> most = rehearse_all(run.runs.most, config, run.data, run.world_size);
  NeededMemory needed;
  for (const PhaseMemory& row : memory_rows(most))
    needed.held = std::max(needed.held, row.use.total() - row.use.activations);
  for (const RehearsedRun& rehearsed : most)
    for (const RehearsedClass& ranks : rehearsed.classes) needed.peak = std::max(needed.peak, ranks.rank.peak_bytes);
  return needed;
}

RehearsedRun rehearse_most(const TrainConfig& config, const PlanOptions& options) {
  const AskedRun run = asked_run(config, options);
  return extreme_of(rehearse_all(run.runs.most, config, run.data, run.world_size), true);
}

std::string settle_step(const TrainConfig& config, PlanOptions& options) {
  if (options.step_milliseconds != kAutoStep) return "";
  const std::string& run = options.factors_from.empty() ? options.decisions_from : options.factors_from;
  if (!run.empty()) {
    options.step_milliseconds = 1000 * measured_step_seconds(config, read_summary(run));
    AB_CHECK(options.step_milliseconds > 0, "--step-ms auto: {} does not tell how long its steps took", run);
    return fmt::format("--step-ms auto takes {:.3g} ms, as steps of {} took, their waiting included.\n",
                       options.step_milliseconds, run);
  }
  AB_CHECK(
      config.device != "cpu" && size_of(activation_type(precision_named(config.precision))) == 2,
      "--step-ms auto knows an H200 in 16 bits alone (--device cuda --precision bf16); give the milliseconds, which "
      "train --ranks 1 --steps 300 prints as 'ms a step'");
  constexpr double kShare = 0.3;  // of bench/RESULTS.md, On an H200
  const double peak = peak_of_gpu("H200", Precision::bf16).flops_per_second;
  const double flops = flops_of_step(config, options);
  options.step_milliseconds = 1000 * flops / (kShare * peak);
  return fmt::format(
      "--step-ms auto takes {:.3g} ms: {:.3g} TFLOP at {:.0f} % of an H200's {:.0f} TFLOP/s in 16 bits. Measured there: 18 % "
      "(ResNet-50)\nto 41 % (VGG16-BN); small nets are slower.\n",
      options.step_milliseconds, flops / 1e12, 100 * kShare, peak / 1e12);
}

namespace {

/// As many as a rank of the run would have, each of which holds images and buffers; those of before when it goes out of scope.
class ThreadsOfRun {
 public:
  ThreadsOfRun(const TrainConfig& config, int ranks_of_node) { set_compute_threads(config.threads, ranks_of_node); }
  ~ThreadsOfRun() { set_compute_threads_within(threads_, cores_); }
  ThreadsOfRun(const ThreadsOfRun&) = delete;
  ThreadsOfRun& operator=(const ThreadsOfRun&) = delete;

 private:
  int threads_ = compute_threads();
  double cores_ = compute_cores();
};

}  // namespace

RunPlan plan_run(const TrainConfig& config, const PlanOptions& options) {
  const Method& method = find_method(config.method);
  const AskedRun run = asked_run(config, options);
  const DataShape& data = run.data;
  const int world_size = run.world_size;
  const int on_node = config.ranks_per_node > 0 ? std::min(config.ranks_per_node, world_size) : world_size;
  const ThreadsOfRun threads(config, on_node);
  const bool open = !run.runs.least.empty();
  std::vector<RehearsedRun> rehearsed = rehearse_all(run.runs.most, config, data, world_size);
  RunPlan plan;
  plan.memory = memory_rows(rehearsed);
  const RehearsedRun most = extreme_of(std::move(rehearsed), true);
  plan.summary = summary_of_plan(most, config, data);
  if (open && method.has_ranks) leave_ranks_open(*run.model, plan.summary);
  plan.cut_r = most.classes.front().rank.cut_r;
  plan.ranks_per_node = config.ranks_per_node;
  plan.steps_per_epoch = run.facts.schedule.steps_per_epoch;
  plan.evaluations = (plan.summary.steps - 1) / evaluation_period(config, run.facts.schedule) + 1;
  plan.batch_size = config.batch_size;
  plan.traffic = traffic_by_phase(most, plan.summary, plan.evaluations);
  if (open) {
    const Summary least = summary_of(extreme_of(rehearse_all(run.runs.least, config, data, world_size), false));
    plan.least = {least.wire_bytes_per_rank_total, least.inter_node_bytes_per_rank_total};
  }
  plan.phases = phases_in_order(most);
  const Wiring wiring = planned_wiring(config);
  plan.all_reduce = wiring.all_reduce;
  plan.links = wiring.network.at(0).assumed;
  plan.step_seconds = step_seconds(config, options, run.trained);
  plan.whole_updates = whole_updates_of(most.classes[0].rank);
  if (plan.step_seconds > 0 && find_dataset(config.dataset).decodes)
    plan.decoded_per_second = static_cast<double>(config.batch_size * config.accumulate) / plan.step_seconds;
  if (find_dataset(config.dataset).decodes && (config.cache_gb > 0 || !config.cache_disk.empty()))
    plan.images = plan_images(config, data.train, world_size / on_node);
  if (options.beside_dense) {
    plan.dense_float32 = dense_run(config, data, world_size, DType::float32, plan.links, plan.step_seconds);
    plan.dense_bfloat16 = dense_run(config, data, world_size, DType::bfloat16, plan.links, plan.step_seconds);
  }
  if (plan.images && options.beside_dense) {
    const DenseRun& dense = config.comm_dtype == DType::float32 ? plan.dense_float32 : plan.dense_bfloat16;
    plan.images->gradients_saved = (dense.inter_node_bytes - plan.summary.inter_node_bytes_per_rank_total) *
                                   world_size * static_cast<double>(plan.steps_per_epoch) /
                                   static_cast<double>(plan.summary.steps);
  }
  plan.time = replay(most, plan.links, plan.step_seconds);
  return plan;
}

}  // namespace ab
