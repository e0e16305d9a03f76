// SPDX-License-Identifier: MIT
//
// DASO (engine/sync/daso.h).
#include "engine/sync/daso.h"

#include "apps/methods/method.h"

namespace ab {
namespace {

constexpr const char* kName = "daso";
constexpr std::int64_t kMostEpochs = 1'000'000;

void release(TrainConfig& config) {
  config.of<DasoOptions>() = {.blocking_epochs = 4, .cooldown_epochs = 4, .max_skips = 8};
}

void release_imagenet(TrainConfig& config) {
  release(config);
  config.of<DasoOptions>().max_skips = 4;
}

void declare(std::vector<Setting>& settings) {
  auto s = method_section<DasoOptions>(settings, kName, "DASO (method daso)");
  s.number("blocking_epochs", &DasoOptions::blocking_epochs, 0, 1e9,
           "epochs at the start in which nodes average after every step");
  s.number("cooldown_epochs", &DasoOptions::cooldown_epochs, 0, 1e9, "the same at the end");
  s.number("start_skips", &DasoOptions::start_skips, 1, 1e6,
           "B: between them nodes send every so many steps, at first");
  s.number("start_wait", &DasoOptions::start_wait, 1, 1e6, "S: steps from a send to its merge, at first");
  s.number("max_skips", &DasoOptions::max_skips, 1, 1e6,
           "B, and four times S, when the loss has stopped falling at B = 1");
  s.number(
      "stability", &DasoOptions::stability, 0, 1,
      "share by which a loss must lie below the best one to count as falling; 1: none does, so B and S change at fixed times");
  s.number("patience", &DasoOptions::patience, 0, 1000, "epochs in a row that may miss that");
}

void check(const TrainConfig& config, Layer&, int) {
  const DasoOptions& daso = config.of<DasoOptions>();
  AB_CHECK(daso.start_wait <= daso.start_skips, "--daso.start-wait {} is above --daso.start-skips {}", daso.start_wait,
           daso.start_skips);
}

std::unique_ptr<SyncStrategy> make(const TrainConfig& config, Layer& model, Comm& world, const LrSchedule& schedule) {
  DasoOptions options = config.of<DasoOptions>();
  options.node_size = node_layout(config, world.size()).node_size;
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
    const auto at = std::ranges::find(decisions, epoch, &DecisionMetrics::epoch);
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
  const DasoOptions options = config.of<DasoOptions>();
  const DasoCalendar calendar(options, facts.schedule);
  AB_CHECK(calendar.epochs() <= kMostEpochs, "a run of DASO can be planned for {} epochs at most, not for {}",
           kMostEpochs, calendar.epochs());
  if (options.stability == 1) return {};
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
  return {.name = kName,
          .declare = declare,
          .presets = {{"release-imagenet", "the ImageNet example in the authors' release", release_imagenet},
                      {"release", "the defaults of that release", release}},
          .check = check,
          .make = make,
          .told = told,
          .decides = true};
}

}  // namespace ab
