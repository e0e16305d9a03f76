// SPDX-License-Identifier: MIT
//
// DASO (engine/sync/daso.h).
#include "engine/sync/daso.h"

#include "apps/methods/method.h"
#include "apps/methods/nodes.h"
#include "apps/methods/preset.h"
#include "layers/model_sizes.h"

namespace ab {
namespace {

constexpr const char* kName = "daso";
constexpr std::int64_t kMostEpochs = 1'000'000;

struct DasoSettings : DasoOptions {
  DasoSettings() { node_size = 0; }  // as --ranks-per-node says: node_layout()

  std::string preset = "default";

  bool operator==(const DasoSettings&) const = default;
};

const DasoSettings& settings_of(const TrainConfig& config) { return config.method_options.of<DasoSettings>(); }

DasoSettings release(std::int64_t max_skips) {
  DasoSettings daso;
  daso.blocking_epochs = daso.cooldown_epochs = 4;
  daso.max_skips = max_skips;
  return daso;
}

void declare(std::vector<Setting>& settings) {
  auto s = method_section<DasoSettings>(settings, kName, "DASO (method daso)");
  declare_preset<DasoSettings>(
      s, {{"default", {}}, {"release-imagenet", release(4)}, {"release", release(8)}},
      "where the other daso settings start from: our own choice for short runs, those of the ImageNet example in the "
      "authors' release, or the defaults of that release");

  s.number("blocking_epochs", &DasoSettings::blocking_epochs, 0, 1e9,
           "epochs at the start in which nodes average after every step");
  s.number("cooldown_epochs", &DasoSettings::cooldown_epochs, 0, 1e9, "the same at the end");
  s.number("start_skips", &DasoSettings::start_skips, 1, 1e6,
           "B: between them nodes send every so many steps, at first");
  s.number("start_wait", &DasoSettings::start_wait, 1, 1e6, "S: steps from a send to its merge, at first");
  s.number("max_skips", &DasoSettings::max_skips, 1, 1e6,
           "B, and four times S, when the loss has stopped falling at B = 1");
  s.choice("decide", &DasoSettings::decide,
           {{"plateau", DasoOptions::Decide::plateau}, {"clock", DasoOptions::Decide::clock}},
           "B and S change when the loss of epochs has stopped falling, or at fixed times as if it never fell");
  s.number("stability", &DasoSettings::stability, 0, 1,
           "share by which a loss must lie below the best one to count as falling");
  s.number("patience", &DasoSettings::patience, 0, 1000, "epochs in a row that may miss that");
  s.number("node_size", &DasoSettings::node_size, 0, 65536,
           "ranks of a node; 0: as --ranks-per-node says, or without it every rank is one");
}

NodeLayout layout_of(const TrainConfig& config, int world_size) {
  return node_layout(config, settings_of(config).node_size, world_size);
}

void check(const TrainConfig& config, Layer&, int world_size) {
  const DasoSettings& daso = settings_of(config);
  check_node_size(kName, daso.node_size, world_size);
  AB_CHECK(daso.start_wait <= daso.start_skips, "--daso.start-wait {} is above --daso.start-skips {}", daso.start_wait,
           daso.start_skips);
}

std::unique_ptr<SyncStrategy> make(const TrainConfig& config, Layer& model, Comm& world, const LrSchedule& schedule) {
  DasoOptions options = settings_of(config);
  options.node_size = layout_of(config, world.size()).node_size;
  // Ranks that do not share gradients share batch norms with all or with none.
  const bool synchronised =
      config.sync_bn == SyncBn::world || (config.sync_bn == SyncBn::group && options.node_size > 1);
  return std::make_unique<DasoStrategy>(replica_of(model, synchronised), world, options, schedule, config.sync_bn,
                                        gradient_wire(config));
}

/// How often a run does what.
struct Counts {
  StepCount blocking, cycling;
  using ByQ = std::vector<std::int64_t>;
  ByQ averages, epoch_ends;              ///< exchanges of blocking epochs, and those that end the other epochs
  std::map<std::int64_t, ByQ> merges{};  ///< by S
  std::int64_t losses = 0;

  Counts(const DasoCalendar& calendar, const std::vector<DasoPace>& paces, const PlannedRun& run, int node_size)
      : averages(static_cast<std::size_t>(node_size), 0), epoch_ends(averages) {
    for (std::int64_t epoch = 0; epoch < calendar.epochs(); ++epoch) {
      const std::int64_t steps = calendar.last_of(epoch) + 1;
      StepCount& kind = calendar.blocking(epoch) ? blocking : cycling;
      kind.steps += steps;
      kind.last_of_epoch += steps == run.steps_per_epoch;
      losses += calendar.decides_after(epoch);
      if (calendar.blocking(epoch)) {
        in_turn(averages, 0, steps);
      } else {
        const DasoPace& pace = paces[static_cast<std::size_t>(epoch)];
        const std::int64_t sends = calendar.sends(epoch, pace);
        if (sends > 0) in_turn(merges.try_emplace(pace.wait, averages.size(), 0).first->second, 0, sends);
        in_turn(epoch_ends, sends, 1);
      }
    }
  }

  std::int64_t all_merges() const {
    std::int64_t total = 0;
    for (const auto& [wait, by_q] : merges) total += sum(by_q);
    return total;
  }

  static std::int64_t sum(const std::vector<std::int64_t>& counts) {
    std::int64_t total = 0;
    for (const std::int64_t n : counts) total += n;
    return total;
  }

 private:
  /// Exchanges number `first` to `first` + `times` − 1 of an epoch.
  static void in_turn(std::vector<std::int64_t>& by_q, std::int64_t first, std::int64_t times) {
    const auto n = static_cast<std::int64_t>(by_q.size());
    for (std::int64_t q = 0; q < n; ++q) {
      const std::int64_t offset = (q - first % n + n) % n;  // of the first of them that is q's
      if (offset < times) by_q[static_cast<std::size_t>(q)] += (times - offset - 1) / n + 1;
    }
  }
};

/// Ranks at the same place in like nodes.
TrafficPlan make_classes(const PlannedRun& run, const NodeLayout& layout) {
  const TrafficPlan nodes = plan_for_nodes(run, layout);
  TrafficPlan plan;
  std::map<std::pair<int, int>, int> known;
  for (int rank = 0; rank < run.world_size; ++rank) {
    const int kind = nodes.class_of_rank[static_cast<std::size_t>(rank)];
    const auto [at, is_new] =
        known.try_emplace({kind, rank - layout.first_of(layout.node_of(rank))}, static_cast<int>(plan.classes.size()));
    if (is_new) plan.classes.push_back({.first = rank, .ledger = nodes.classes[static_cast<std::size_t>(kind)].ledger});
    ++plan.classes[static_cast<std::size_t>(at->second)].count;
    plan.class_of_rank.push_back(at->second);
  }
  return plan;
}

std::int64_t bytes_of(const std::map<DType, std::int64_t>& elements) {
  std::int64_t bytes = 0;
  for (const auto& [dtype, number] : elements) bytes += number * static_cast<std::int64_t>(size_of(dtype));
  return bytes;
}

TrafficPlan plan_traffic(const PlannedRun& run, const NodeLayout& layout, const ModelSizes& sizes,
                         const Counts& counts) {
  TrafficPlan plan = make_classes(run, layout);
  const std::int64_t all = bytes_of(sizes.model_by_type), params = all - bytes_of(sizes.buffers_by_type);
  const auto gradients = layout.node_size > 1 ? sizes.gradients() : std::vector<std::int64_t>{};
  for (RankClass& ranks : plan.classes) {
    TrafficCounter counter(run, plan, ranks);
    counter.setup(sizes);
    const RingMembers node{layout.members_of(layout.node_of(ranks.first)), NodeLayout::kLabel};
    counter.steps(DasoStrategy::kBlocking, counts.blocking, gradients, node);
    counter.steps(DasoStrategy::kCycling, counts.cycling, gradients, node);
    counter.set_phase(DasoStrategy::kCycling);
    counter.over(counter.world(), Collective::all_reduce, SyncStrategy::kEpochLossBytes, counts.losses);
    // All-reduces of `sent` bytes each between the senders, then `shared` bytes to their nodes.
    const auto exchange = [&](const char* phase, const std::vector<std::int64_t>& sent, std::int64_t shared,
                              const std::vector<std::int64_t>& by_q, std::int64_t steps_in_flight = 0) {
      counter.set_phase(phase);
      for (std::size_t q = 0; q < by_q.size(); ++q) {
        const std::vector<int> senders = daso_senders(layout, static_cast<std::int64_t>(q));
        if (std::find(senders.begin(), senders.end(), ranks.first) == senders.end()) continue;
        for (const std::int64_t bytes : sent)
          counter.in_flight({senders, DasoStrategy::kLabel}, bytes, by_q[q], steps_in_flight);
      }
      counter.over(node, Collective::broadcast, shared, Counts::sum(by_q));
    };
    if (run.gradients.dtype == DType::float32) exchange(DasoStrategy::kAverage, {all}, all, counts.averages);
    else exchange(DasoStrategy::kAverage, {params / 2, all - params}, all, counts.averages);
    exchange(DasoStrategy::kAverage, {all}, all, counts.epoch_ends);
    for (const auto& [wait, by_q] : counts.merges) exchange(DasoStrategy::kMerge, {params}, params, by_q, wait);
    counter.evaluations();
  }
  return plan;
}

/// Those of a trained run.
std::vector<DasoPace> paces_of_run(const DasoOptions& options, const DasoCalendar& calendar,
                                   const std::vector<DecisionMetrics>& decisions) {
  DasoPace pace{options.start_skips, options.start_wait};
  std::vector<DasoPace> paces;
  for (std::int64_t epoch = 0; epoch < calendar.epochs(); ++epoch) {
    paces.push_back(pace);
    if (!calendar.decides_after(epoch)) continue;
    const auto at = std::find_if(decisions.begin(), decisions.end(),
                                 [&](const DecisionMetrics& decision) { return decision.epoch == epoch; });
    AB_CHECK(at != decisions.end() && at->values.contains("skips") && at->values.contains("wait"),
             "--decisions-from names a run that decided nothing after epoch {}, where this one does", epoch);
    pace = {at->values.at("skips"), at->values.at("wait")};
    AB_CHECK(pace.skips >= 1 && pace.wait >= 1, "--decisions-from: B = {} and S = {} after epoch {} cannot be",
             pace.skips, pace.wait, epoch);
  }
  return paces;
}

MethodPlan plan(const TrainConfig& config, Layer& model, const PlannedRun& run) {
  check(config, model, run.world_size);
  const DasoOptions options = settings_of(config);
  const NodeLayout layout = layout_of(config, run.world_size);
  const ModelSizes sizes = sizes_of(model);
  const DasoCalendar calendar(options, run.schedule);
  AB_CHECK(calendar.epochs() <= kMostEpochs, "a run of DASO can be planned for {} epochs at most, not for {}",
           kMostEpochs, calendar.epochs());
  const auto counted = [&](const std::vector<DasoPace>& paces) {
    return Counts(calendar, paces, run, layout.size_of(0));
  };
  const bool is_known = options.decide == DasoOptions::Decide::clock || !run.decisions.empty();
  const Counts counts = counted(options.decide == DasoOptions::Decide::clock ? paces_by_clock(options, calendar)
                                : is_known ? paces_of_run(options, calendar, run.decisions)
                                           : extreme_paces(options, calendar, /*most=*/true));
  MethodPlan plan{
      .traffic = plan_traffic(run, layout, sizes, counts),
      .phases = {DasoStrategy::kBlocking, DasoStrategy::kCycling, DasoStrategy::kAverage, DasoStrategy::kMerge}};
  if (!is_known) {
    const Counts least = counted(extreme_paces(options, calendar, /*most=*/false));
    if (least.all_merges() != counts.all_merges()) plan.least = plan_traffic(run, layout, sizes, least);
  }
  plan.times = {{DasoStrategy::kAverage, Counts::sum(counts.averages) + Counts::sum(counts.epoch_ends)},
                {DasoStrategy::kMerge, counts.all_merges()}};
  MemoryUse memory = memory_at_full_rank(sizes, run);
  if (layout.node_size == 1) memory.buckets = 0;
  memory.buckets += bytes_of(sizes.model_by_type);
  if (config.comm_dtype != DType::float32) memory.kept = 4 * sizes.parameters();
  plan.memory = {{"full rank", memory}};
  return plan;
}

/// A run whose epochs go at those paces.
Told told_paces(const std::vector<DasoPace>& paces) {
  Told told;
  told.unknowns.decision = [paces](std::int64_t epoch) {
    const DasoPace& next = paces.at(static_cast<std::size_t>(epoch + 1));
    return std::map<std::string, std::int64_t>{{"skips", next.skips}, {"wait", next.wait}};
  };
  return told;
}

MayBecome told(const TrainConfig& config, Layer&, const RunFacts& facts) {
  const DasoOptions options = settings_of(config);
  const DasoCalendar calendar(options, facts.schedule);
  AB_CHECK(calendar.epochs() <= kMostEpochs, "a run of DASO can be planned for {} epochs at most, not for {}",
           kMostEpochs, calendar.epochs());
  if (options.decide == DasoOptions::Decide::clock) return {{}};
  if (!facts.decisions.empty()) return {told_paces(paces_of_run(options, calendar, facts.decisions))};
  const auto sends = [&](const std::vector<DasoPace>& paces) {
    std::int64_t all = 0;
    for (std::int64_t epoch = 0; epoch < calendar.epochs(); ++epoch)
      if (!calendar.blocking(epoch)) all += calendar.sends(epoch, paces[static_cast<std::size_t>(epoch)]);
    return all;
  };
  const std::vector<DasoPace> most = extreme_paces(options, calendar, true),
                              least = extreme_paces(options, calendar, false);
  if (sends(most) == sends(least)) return {told_paces(most)};
  return {told_paces(most), told_paces(least)};
}

}  // namespace

Method daso_method() {
  return {.name = kName,
          .declare = declare,
          .check = check,
          .make = make,
          .plan = plan,
          .told = told,
          .decides = true,
          .laws = {{.small = "cooldown_epochs = 0\nstart_skips = 2\npatience = 0\ndecide = \"clock\"",
                    .phases = {DasoStrategy::kBlocking, DasoStrategy::kCycling, DasoStrategy::kAverage},
                    .lossless = "blocking_epochs = 1000000",
                    .lossless_to_the_bit = false,
                    .unusable_by_three = "node_size = 4"}}};
}

}  // namespace ab
