// SPDX-License-Identifier: MIT
//
// DASO (engine/sync/daso.h).
#include "engine/sync/daso.h"

#include "apps/methods/method.h"
#include "apps/methods/nodes.h"
#include "apps/methods/preset.h"

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
  if (options.decide == DasoOptions::Decide::clock) return {};
  if (!facts.decisions.empty()) return {{told_paces(paces_of_run(options, calendar, facts.decisions))}};
  const auto sends = [&](const std::vector<DasoPace>& paces) {
    std::int64_t all = 0;
    for (std::int64_t epoch = 0; epoch < calendar.epochs(); ++epoch)
      if (!calendar.blocking(epoch)) all += calendar.sends(epoch, paces[static_cast<std::size_t>(epoch)]);
    return all;
  };
  const std::vector<DasoPace> most = extreme_paces(options, calendar, true),
                              least = extreme_paces(options, calendar, false);
  if (sends(most) == sends(least)) return {{told_paces(most)}};
  return {{told_paces(most)}, {told_paces(least)}};
}

}  // namespace

Method daso_method() {
  return {.name = kName, .declare = declare, .check = check, .make = make, .told = told, .decides = true};
}

}  // namespace ab
