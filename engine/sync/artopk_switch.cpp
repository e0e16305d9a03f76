// SPDX-License-Identifier: MIT
#include "engine/sync/artopk_switch.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

namespace ab {
namespace {

/// The shortest time of an all-reduce of `tensor`, of kTimes.
double shortest(Comm& world, const Tensor& tensor) {
  using Clock = std::chrono::steady_clock;
  double best = HUGE_VAL;
  for (std::int64_t i = 0; i < ArtopkSwitch::kTimes; ++i) {
    const Clock::time_point begin = Clock::now();
    world.all_reduce(tensor, ReduceOp::sum);
    tensor.slice(0, 1).to_doubles();  // a device may not be done
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
  const std::vector<double> mean = agreed.to_doubles();
  return {mean[0], 1 / mean[1]};
}

ArtopkWay ArtopkSwitch::next(std::int64_t step) {
  if (world_.size() > 1 && step % options_.every == 0) {
    std::vector<int> ranks(static_cast<std::size_t>(world_.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    const Ledger& ledger = world_.ledger();
    link_ = options_.is_given ? link_of_group(ledger.layout_of(ranks), ledger.links()) : measure();
    way_ = fastest_way(world_.size(), options_.payload, link_);
  }
  ++steps_.at(way_);
  return way_;
}

std::int64_t ArtopkSwitch::steps() const {
  std::int64_t all = 0;
  for (const auto& [way, steps] : steps_) all += steps;
  return all;
}

std::map<std::string, std::int64_t> ArtopkSwitch::decision() const {
  std::map<std::string, std::int64_t> values{{"latency_ns", whole(link_.latency * 1e9)},
                                             {"bytes_per_second", whole(link_.bandwidth)}};
  for (const auto& [way, steps] : steps_) values[steps_name(way)] = steps;
  return values;
}

void ArtopkSwitch::save(StateDict& state, const std::string& prefix) const {
  state.put(prefix + ".way", static_cast<std::int64_t>(way_));
  state.put(prefix + ".latency", link_.latency);
  state.put(prefix + ".bandwidth", link_.bandwidth);
  for (const auto& [way, steps] : steps_) state.put(fmt::format("{}.{}", prefix, steps_name(way)), steps);
}

void ArtopkSwitch::load(const StateDict& saved, const std::string& prefix) {
  const std::int64_t way = saved.integer(prefix + ".way");
  AB_CHECK_KIND(checkpoint, way >= 0 && way < static_cast<std::int64_t>(std::size(kArtopkWays)),
                "the checkpoint names a way {} of {}, which there is not", way, prefix);
  way_ = static_cast<ArtopkWay>(way);
  link_ = {saved.number(prefix + ".latency"), saved.number(prefix + ".bandwidth")};
  for (auto& [known, steps] : steps_) steps = saved.integer(fmt::format("{}.{}", prefix, steps_name(known)));
}

}  // namespace ab
