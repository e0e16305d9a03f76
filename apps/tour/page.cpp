// SPDX-License-Identifier: MIT
//
// The page is page.html with the data of a run, as JSON, in it.

#include <fmt/format.h>
#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>
#include <numeric>

#include "ablowrank/factorise.h"
#include "apps/plan/method_choice.h"
#include "apps/settings/setting.h"
#include "apps/tour/tour.h"

namespace ab::tour {

extern const char* const kPageTemplate;  // page.html, as CMake has completed it

namespace {

using nlohmann::json;

constexpr int kFilters = 12;
constexpr double kStepsOfRun = 28080;  // of 90 epochs of ImageNet, 64 images on each of 64 GPUs
constexpr const char* kMethodsShown[] = {"dense", "dense_bf16", "powersgd", "acpsgd", "local", "late_cut", "ab"};

/// Five significant digits, so that equal runs make equal pages whatever a last bit does.
json number(double value) {
  if (value == 0) return 0;
  const double unit = std::pow(10.0, std::floor(std::log10(std::abs(value))) - 4);
  return std::stod(fmt::format("{:.5g}", std::round(value / unit) * unit));
}

json numbers(const std::vector<double>& values) {
  json list = json::array();
  for (const double value : values) list.push_back(number(value));
  return list;
}

json of_score(const Score& score) { return {number(score.loss), number(score.top1)}; }

json of_story(const Story& story) {
  json list = json::array();
  for (const Moment& moment : story)
    list.push_back({{"step", moment.step},
                    {"process", moment.process},
                    {"phase", moment.phase},
                    {"sigma", numbers(moment.sigma)},
                    {"loss", number(moment.score.loss)},
                    {"sent", moment.sent_bytes}});
  return list;
}

json of_dense(const Tour& tour) {
  json list = json::array();
  for (const auto& [step, score] : tour.dense)
    list.push_back({step, number(score.loss), number(score.top1), tour.dense_sent.at(step)});
  return list;
}

/// Rows of W of the largest norm, as sums of directions: the coefficients of each, and of all directions 256 grey values.
json of_trained(const TrainedWeight& trained) {
  const LowRank parts = decompose(trained.w, nullptr);
  const FactorPair pair = apply_gauge(parts, Gauge::orthonormal, true);
  const std::vector<double> a = pair.outer.to_doubles(), v = pair.inner.to_doubles();
  std::vector<double> norms;
  for (int i = 0; i < kHidden; ++i)
    norms.push_back(
        std::inner_product(a.begin() + i * kPixels, a.begin() + (i + 1) * kPixels, a.begin() + i * kPixels, 0.0));
  std::vector<int> order(kHidden);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(
      order, [&](int i, int k) { return norms[static_cast<std::size_t>(i)] > norms[static_cast<std::size_t>(k)]; });
  json filters = json::array(), cuts = json::array(), directions = json::array();
  for (int i = 0; i < kFilters; ++i) {
    const auto row = a.begin() + order[static_cast<std::size_t>(i)] * kPixels;
    filters.push_back(numbers({row, row + kPixels}));
  }
  for (const double value : v) directions.push_back(static_cast<int>(std::lround(250 * value)));
  for (const CutAtRank& cut : trained.cuts)
    cuts.push_back({{"r", cut.r}, {"by_sigma", of_score(cut.by_sigma)}, {"by_loss", of_score(cut.by_loss)}});
  return {{"sigma", numbers(parts.sigma.to_doubles())},
          {"sensitivity", numbers(trained.sensitivity)},
          {"filters", filters},
          {"directions", directions},
          {"cuts", cuts}};
}

/// Stretches of `order` that repeat, as how often and what: [[times, [[part, times], …]], …].
json in_cycles(const std::vector<std::pair<std::size_t, std::int64_t>>& order) {
  constexpr std::size_t kLongest = 64;
  json cycles = json::array();
  for (std::size_t at = 0; at < order.size();) {
    std::size_t length = 1, times = 1;
    for (std::size_t period = 1; period <= std::min(kLongest, (order.size() - at) / 2); ++period) {
      std::size_t same = at + period;
      while (same < order.size() && order[same] == order[same - period]) ++same;
      if (const std::size_t repeats = (same - at) / period; repeats > 1 && repeats * period > length * times)
        length = period, times = repeats;
    }
    json cycle = json::array();
    for (std::size_t i = at; i < at + length; ++i) cycle.push_back({order[i].first, order[i].second});
    cycles.push_back({times, cycle});
    at += length * times;
  }
  return cycles;
}

/// What a rank does, for the replay of apps/plan/replay.h in the page's script; parts that are alike once. A collective has
/// the rounds of its ring, whether that crosses nodes and has links inside them, how many groups share the card, and its
/// phase; an event the part's operations until then, its request, and where it starts its collective and bytes.
json of_rank(const RehearsedRank& rank) {
  const std::map<std::string, int> at_once = groups_at_once(rank);
  std::vector<json> collectives, parts;
  const auto place_of = [](std::vector<json>& all, const json& one) {
    const auto at = std::ranges::find(all, one);
    const std::size_t place = static_cast<std::size_t>(at - all.begin());
    if (at == all.end()) all.push_back(one);
    return place;
  };
  std::vector<std::size_t> place_of_part;
  for (const RehearsedPart& part : rank.parts) {
    json events = json::array();
    for (const CommEvent& event : part.events) {
      const double sweeps = event.what == Collective::all_reduce ? 2 : 1, p = event.route.ranks;
      const auto shared = at_once.find(event.group);
      AB_ASSERT(event.route.algorithm == AllReduce::library);  // whose time is that of a ring
      const std::size_t collective =
          place_of(collectives, {sweeps * (p - 1) * static_cast<double>(segments(event.route, event.bytes)),
                                 event.route.nodes > 1 ? 1 : 0, event.route.nodes < event.route.ranks ? 1 : 0,
                                 shared == at_once.end() ? 1 : shared->second, event.phase, event.group});
      json row{event.flops - part.flops_before, event.request - part.events.front().request, collective};
      if (event.starts) row.push_back(std::llround(sweeps * (p - 1) / p * static_cast<double>(event.bytes)));
      events.push_back(row);
    }
    place_of_part.push_back(
        place_of(parts, {{"flops", part.flops}, {"micro_batches", part.micro_batches}, {"events", events}}));
  }
  std::vector<std::pair<std::size_t, std::int64_t>> order;
  for (const auto& [part, times] : rank.order) {
    const std::size_t place = place_of_part[part];
    if (!order.empty() && order.back().first == place) order.back().second += times;
    else order.emplace_back(place, times);
  }
  return {{"collectives", collectives}, {"parts", parts}, {"order", in_cycles(order)}};
}

/// Runs of two models on 16 nodes of four GPUs, by the methods that README compares.
json of_plans() {
  json models = json::object();
  for (const std::string model : {"resnet50", "vit_b_16"}) {
    json methods = json::array();
    for (const MeasuredMethod& method : measured_methods()) {
      if (std::ranges::find(kMethodsShown, std::string(method.row)) == std::end(kMethodsShown)) continue;
      std::vector<FlagValue> flags{{"model", model}, {"dataset", "imagenet"}, {"device", "cuda"}, {"batch_size", "64"},
                                   {"ranks", "64"},  {"ranks_per_node", "4"}, {"epochs", "90"},   {"bucket_mb", "8"}};
      flags.insert(flags.end(), method.flags.begin(), method.flags.end());
      if (const std::string own = std::string(method.flags.front().second) + ".bucket_mb"; find_setting(own))
        flags.emplace_back(own, "8");
      for (const auto& [key, share] : method.shares)
        flags.push_back({key, std::to_string(std::lround(share * kStepsOfRun))});
      const RehearsedRun run = rehearse_most(resolve_train_config(flags, "", ConfigUse::plan), {});
      json classes = json::array();
      for (const RehearsedClass& ranks : run.classes) classes.push_back(of_rank(ranks.rank));
      methods.push_back({{"name", method.name},
                         {"flags", flags_text(flags)},
                         {"below", method.points_below},
                         {"steps", summary_of(run).steps},
                         {"classes", classes}});
    }
    models[model] = methods;
  }
  return models;
}

}  // namespace

std::string page(const Tour& tour) {
  const Flags& flags = tour.flags;
  const json data{{"warmup", flags.warmup},
                  {"low_rank_steps", kLowRankSteps},
                  {"rebound_steps", kReboundSteps},
                  {"steps", flags.steps()},
                  {"loss_chooses", flags.r == 0},
                  {"r", flags.kept()},
                  {"cut_r", tour.cut_r},
                  {"gradient",
                   {{"step", OneGradient::kStep},
                    {"r", OneGradient::kRank},
                    {"sigma", numbers(tour.gradient.sigma)},
                    {"best", number(tour.gradient.best)},
                    {"random_q", number(tour.gradient.from_random_q)},
                    {"old_q", number(tour.gradient.from_old_q)}}},
                  {"dense", of_dense(tour)},
                  {"weight", of_trained(tour.trained)},
                  {"ab", of_story(tour.ab)},
                  {"late_cut", of_story(tour.late_cut)},
                  {"plans", of_plans()}};
  std::string html = kPageTemplate;
  const std::string place = "/*DATA*/";
  return html.replace(html.find(place), place.size(), data.dump());
}

}  // namespace ab::tour
