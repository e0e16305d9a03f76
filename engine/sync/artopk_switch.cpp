// SPDX-License-Identifier: MIT
#include "engine/sync/artopk_switch.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <tuple>

#include "engine/kernels/reduce.h"
#include "engine/kernels/select.h"
#include "engine/kernels/sparse.h"
#include "engine/sync/sparse_average.h"
#include "engine/sync/unknowns.h"

namespace ab {

double ring_seconds(int ranks, double bytes, const Link& link) {
  return 2.0 * (ranks - 1) * (link.latency + bytes / ranks / link.bandwidth);
}

double tree_seconds(int ranks, double bytes, const Link& link) {
  return 2 * std::log2(ranks) * (link.latency + bytes / link.bandwidth);
}

double broadcast_seconds(int ranks, double bytes, const Link& link) {
  return std::log2(ranks) * (link.latency + bytes / link.bandwidth);
}

double gather_seconds(int ranks, double bytes, const Link& link) {
  return std::log2(ranks) * link.latency + (ranks - 1) * bytes / link.bandwidth;
}

const char* name_of(ArtopkWay way) {
  constexpr const char* kNames[] = {"ring", "tree", "gather"};
  return kNames[static_cast<int>(way)];
}

ArtopkPayload artopk_payload(std::int64_t k, std::int64_t wire_bytes) {
  const auto elements = static_cast<double>(k);
  return {4 * elements, static_cast<double>(wire_bytes) * elements, 8 * elements};
}

double artopk_seconds(ArtopkWay way, int ranks, const ArtopkPayload& payload, const Link& link) {
  if (way == ArtopkWay::gather) return gather_seconds(ranks, payload.gathered_bytes, link);
  const auto& all_reduce_seconds = way == ArtopkWay::ring ? ring_seconds : tree_seconds;
  return broadcast_seconds(ranks, payload.index_bytes, link) + all_reduce_seconds(ranks, payload.summed_bytes, link);
}

ArtopkWay fastest_way(int ranks, const ArtopkPayload& payload, const Link& link) {
  return *std::ranges::min_element(kArtopkWays, {},
                                   [&](ArtopkWay way) { return artopk_seconds(way, ranks, payload, link); });
}

Link link_of_ring(int ranks, double small_bytes, double small_seconds, double large_bytes, double large_seconds) {
  AB_ASSERT(ranks >= 2 && large_bytes > small_bytes);
  constexpr double kLeastSecondsPerByte = 1e-13;
  const double rounds = 2.0 * (ranks - 1);
  const double beta =
      std::max((large_seconds - small_seconds) * ranks / (rounds * (large_bytes - small_bytes)), kLeastSecondsPerByte);
  return {std::max(small_seconds / rounds - small_bytes / ranks * beta, 0.0), 1 / beta};
}

const Link& link_of_group(const Layout& group, const LinkModel& links) {
  return group.nodes() > 1 ? links.inter_node : links.intra_node;
}

std::vector<std::int64_t> adaptive_elements(double least, double most, std::int64_t n) {
  constexpr double kADecade = 4;
  AB_ASSERT(0 < least && least <= most && most <= 1);
  const auto parts = static_cast<int>(std::ceil(kADecade * std::log10(most / least) - 1e-9));
  std::vector<std::int64_t> elements{elements_of_density(most, n)};
  for (int i = 1; i <= parts; ++i) {
    const double ratio = i == parts ? least : most * std::pow(least / most, static_cast<double>(i) / parts);
    if (const std::int64_t k = elements_of_density(ratio, n); k < elements.back()) elements.push_back(k);
  }
  return elements;
}

std::vector<double> gains_of(const Tensor& x, const std::vector<std::int64_t>& elements) {
  const FiniteCheck unmarked(x.device());
  const double whole = sum_of_squares(x);
  std::vector<double> gains;
  Tensor from = x;
  for (const std::int64_t k : elements) {
    if (k < from.numel()) {
      const Tensor bytes({4 * k}, DType::uint8, x.device()), values({k}, DType::float32, x.device());
      auto* const indices = reinterpret_cast<std::uint32_t*>(bytes.data<std::uint8_t>());
      Selector(from.numel(), x.device()).exact(from, k, indices);
      take_values(from, {k, values.data<float>(), indices}, k, unmarked);
      from = values;
    }
    gains.push_back(sum_of_squares(from) / whole);
  }
  return gains;
}

std::optional<std::size_t> best_trial(std::span<const RatioTrial> trials) {
  constexpr double kOfTime = 0.6, kOfGain = 0.4;
  const auto usable = [](const RatioTrial& t) {
    return std::isfinite(t.seconds) && t.gain > 0 && std::isfinite(t.gain);
  };
  if (trials.empty() || !std::ranges::all_of(trials, usable)) return {};
  const auto beats = [](const RatioTrial& a, const RatioTrial& b) {
    return a.seconds <= b.seconds && a.gain >= b.gain && (a.seconds < b.seconds || a.gain > b.gain);
  };
  std::vector<std::size_t> front;
  for (std::size_t i = 0; i < trials.size(); ++i)
    if (std::ranges::none_of(trials, [&](const RatioTrial& other) { return beats(other, trials[i]); }))
      front.push_back(i);
  /// From the ideal to the worst of the front, as 0 to 1.
  const auto scaled = [&](const auto& aim) {
    const auto [least, most] = std::ranges::minmax(front, {}, aim);
    return [aim, low = aim(least), width = aim(most) - aim(least)](std::size_t i) {
      return width > 0 ? (aim(i) - low) / width : 0;
    };
  };
  const auto time = scaled([&](std::size_t i) { return trials[i].seconds; });
  const auto loss = scaled([&](std::size_t i) { return 1 / trials[i].gain; });
  return *std::ranges::min_element(front, {},
                                   [&](std::size_t i) { return std::max(kOfTime * time(i), kOfGain * loss(i)); });
}

namespace {

/// The shortest time of an all-reduce of `tensor`, of kTimes.
double shortest(Comm& world, const Tensor& tensor) {
  using Clock = std::chrono::steady_clock;
  double best = HUGE_VAL;
  for (std::int64_t i = 0; i < ArtopkSwitch::kTimes; ++i) {
    const Clock::time_point begin = Clock::now();
    world.all_reduce(tensor, ReduceOp::sum);
    tensor.slice(0, 1).to_doubles(0);  // a device may not be done
    best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

std::int64_t whole(double figure) { return std::llround(std::min(figure, 1e18)); }

}  // namespace

Link ArtopkSwitch::measure() const {
  Ledger& ledger = world_.ledger();
  const std::string phase = ledger.phase();
  ledger.set_phase(kProbe);
  const AllReduceScope by_ring(ledger, AllReduce::ring);
  const Tensor small = Tensor::zeros({kSmallBytes / 4}, DType::float32, device_);
  const Tensor large = Tensor::zeros({kLargeBytes / 4}, DType::float32, device_);
  world_.all_reduce(small, ReduceOp::sum);  // all ranks have come
  const double of_small = shortest(world_, small), of_large = shortest(world_, large);
  const Link own = link_of_ring(world_.size(), kSmallBytes, of_small, kLargeBytes, of_large);
  const Tensor agreed = Tensor::from(std::vector<double>{own.latency, 1 / own.bandwidth}, Shape{2}, device_);
  world_.all_reduce(agreed, ReduceOp::mean);
  ledger.set_phase(phase);
  const std::vector<double> mean = agreed.to_doubles(0);
  return {mean[0], 1 / mean[1]};
}

void ArtopkSwitch::choose_elements(const std::vector<double>& gains) {
  Ledger& ledger = world_.ledger();
  const std::string phase = ledger.phase();
  ledger.set_phase(kProbe);
  const AllReduceScope by_ring(ledger, AllReduce::ring);
  const Tensor agreed = Tensor::from(gains, Shape{static_cast<std::int64_t>(gains.size())}, device_);
  world_.all_reduce(agreed, ReduceOp::mean);
  ledger.set_phase(phase);
  const std::vector<double> mean = agreed.to_doubles(0);
  std::vector<RatioTrial> trials;
  for (std::size_t i = 0; i < mean.size(); ++i) {
    const ArtopkWay way = fastest_way(world_.size(), payload(i), link_);
    trials.push_back({artopk_seconds(way, world_.size(), payload(i), link_), mean[i]});
  }
  chosen_ = best_trial(trials).value_or(chosen_);  // after an overflow it stays
}

ArtopkWay ArtopkSwitch::next(std::int64_t step, const std::function<std::vector<double>()>& gains) {
  if (world_.size() > 1 && step % options_.every == 0) {
    const Ledger& ledger = world_.ledger();
    link_ = options_.is_given ? link_of_group(ledger.layout_of(first_ranks(world_.size())), ledger.links()) : measure();
    if (adapts()) choose_elements(gains());
    way_ = fastest_way(world_.size(), payload(chosen_), link_);
  }
  if (const std::optional<Choice> told = told_choice(step)) std::tie(way_, chosen_) = *told;
  ++steps_[{way_, chosen_}];
  return way_;
}

/// From how many steps take each, in the order of ways.
std::optional<ArtopkSwitch::Choice> ArtopkSwitch::told_choice(std::int64_t step) const {
  const Unknowns* const told = Unknowns::current();
  if (!told || !told->decision) return {};
  const std::map<std::string, std::int64_t> steps = told->decision(0);
  for (const ArtopkWay way : kArtopkWays)
    for (std::size_t i = 0; i < options_.elements.size(); ++i) {
      const auto at = steps.find(steps_name({way, i}));
      if (at == steps.end()) continue;
      if (step < at->second) return Choice{way, i};
      step -= at->second;
    }
  return {};
}

std::int64_t ArtopkSwitch::kind(std::int64_t step) const {
  const Choice choice = told_choice(step).value_or(Choice{way_, chosen_});
  const bool chooses = world_.size() > 1 && step % options_.every == 0;
  return 2 * (static_cast<std::int64_t>(choice.second) * std::ssize(kArtopkWays) + static_cast<int>(choice.first)) +
         chooses;
}

std::int64_t ArtopkSwitch::steps() const {
  std::int64_t all = 0;
  for (const auto& [choice, steps] : steps_) all += steps;
  return all;
}

std::string ArtopkSwitch::steps_name(const Choice& choice) const {
  const auto& [way, i] = choice;
  return adapts() ? steps_name(way, options_.elements[i]) : steps_name(way);
}

std::map<std::string, std::int64_t> ArtopkSwitch::decision() const {
  std::map<std::string, std::int64_t> values{{"latency_ns", whole(link_.latency * 1e9)},
                                             {"bytes_per_second", whole(link_.bandwidth)}};
  if (adapts()) values["elements"] = elements();
  else
    for (const ArtopkWay way : kArtopkWays) values[steps_name(way)] = 0;
  for (const auto& [choice, steps] : steps_) values[steps_name(choice)] = steps;
  return values;
}

void ArtopkSwitch::save(StateDict& state, const std::string& prefix) const {
  state.put(prefix + ".way", static_cast<std::int64_t>(way_));
  state.put(prefix + ".latency", link_.latency);
  state.put(prefix + ".bandwidth", link_.bandwidth);
  if (adapts()) state.put(prefix + ".chosen", static_cast<std::int64_t>(chosen_));
  for (const ArtopkWay way : kArtopkWays)
    for (std::size_t i = 0; i < options_.elements.size(); ++i) {
      const auto at = steps_.find({way, i});
      state.put(fmt::format("{}.{}", prefix, steps_name({way, i})), at == steps_.end() ? std::int64_t{0} : at->second);
    }
}

void ArtopkSwitch::load(const StateDict& saved, const std::string& prefix) {
  const auto index = [&](const char* name, std::size_t count) {
    const std::int64_t i = saved.integer(fmt::format("{}.{}", prefix, name));
    AB_CHECK_KIND(checkpoint, i >= 0 && i < static_cast<std::int64_t>(count),
                  "the checkpoint names number {} of {}.{}, of which there are {}", i, prefix, name, count);
    return i;
  };
  way_ = static_cast<ArtopkWay>(index("way", std::size(kArtopkWays)));
  if (adapts()) chosen_ = static_cast<std::size_t>(index("chosen", options_.elements.size()));
  link_ = {saved.number(prefix + ".latency"), saved.number(prefix + ".bandwidth")};
  steps_.clear();
  for (const ArtopkWay way : kArtopkWays)
    for (std::size_t i = 0; i < options_.elements.size(); ++i)
      if (const std::int64_t steps = saved.integer(fmt::format("{}.{}", prefix, steps_name({way, i}))); steps > 0)
        steps_[{way, i}] = steps;
}

}  // namespace ab
