// SPDX-License-Identifier: MIT
#include "apps/plan/replay.h"

#include <algorithm>
#include <deque>
#include <numeric>
#include <set>

namespace ab {

std::map<std::string, int> groups_at_once(const RehearsedRank& rank) {
  std::map<std::string, int> at_once;
  for (const Partition& partition : rank.partitions) {
    std::vector<int> world(partition.group_of.size());
    std::iota(world.begin(), world.end(), 0);
    const std::vector<int> node_of = rank.ledger.layout_of(world).node_of;
    std::map<int, int> crossing;  // groups, by node
    std::set<int> own;
    for (const auto& [colour, members] : groups_of(partition)) {
      std::set<int> nodes;
      for (const int member : members) nodes.insert(node_of[static_cast<std::size_t>(member)]);
      if (nodes.size() > 1)
        for (const int node : nodes) ++crossing[node];
      if (colour == partition.group_of[static_cast<std::size_t>(rank.rank)]) own = nodes;
    }
    int& most = at_once.try_emplace(partition.name, 1).first->second;
    for (const int node : own) most = std::max(most, crossing[node]);
  }
  return at_once;
}

namespace {

/// A rank's run once more.
class Replay {
 public:
  Replay(const RehearsedRank& rank, const LinkModel& links, double step_seconds)
      : rank_(rank), links_(links), step_seconds_(step_seconds), at_once_(groups_at_once(rank)) {
    double images = 0, pixels = 0;  // in units of a micro-batch
    for (const RehearsedPart& part : rank.parts) {
      micro_batches_ = std::max(micro_batches_, part.micro_batches);
      const auto count = static_cast<double>(part.times * part.micro_batches);
      images += count, pixels += count * area(part);
    }
    if (pixels > 0) mean_area_ = pixels / images;
  }

  std::map<std::string, PhaseTime> run() {
    for (const auto& [phase, sent] : rank_.ledger.by_phase()) times_[phase] = {};
    for (const RehearsedPart& part : rank_.parts)
      for (const CommEvent& event : part.events)
        if (event.starts)
          times_[event.phase].communication +=
              static_cast<double>(part.times) * links_of(event.group).seconds(event.what, event.route, 1, event.bytes);
    if (step_seconds_ == 0) return times_;
    for (const auto& [part, times] : rank_.order) go_through(rank_.parts[part], times);
    for (auto& [phase, time] : times_) time.hidden = std::max(0.0, time.communication - delays_[phase]);
    return times_;
  }

 private:
  /// Parts in a row come to go alike.
  void go_through(const RehearsedPart& part, std::int64_t times) {
    constexpr std::int64_t kTaken = 16;
    for (std::int64_t i = 1; i < std::min(times, kTaken); ++i) go_through_once(part);
    const std::map<std::string, double> before = delays_;
    go_through_once(part);
    for (auto& [phase, seconds] : delays_) {
      const auto at = before.find(phase);
      const double last = seconds - (at == before.end() ? 0 : at->second);
      seconds += last * static_cast<double>(std::max<std::int64_t>(0, times - kTaken));
    }
  }

  void go_through_once(const RehearsedPart& part) {
    const double size = mean_area_ > 0 ? area(part) / mean_area_ : 1;
    const double share = size * static_cast<double>(part.micro_batches) / static_cast<double>(micro_batches_);
    const double per_flop = part.flops > 0 ? step_seconds_ * share / static_cast<double>(part.flops) : 0;
    std::int64_t done = part.flops_before;
    std::map<std::int64_t, double> arrivals;  // of this part's requests
    for (const CommEvent& event : part.events) {
      now_ += per_flop * static_cast<double>(event.flops - done);
      done = event.flops;
      if (event.starts) {
        arrivals[event.request] = start(event);
        continue;
      }
      double arrived = now_;
      if (const auto own = arrivals.find(event.request); own != arrivals.end()) {
        arrived = own->second;
        arrivals.erase(own);
      } else if (auto& earlier = in_flight_[{event.group, event.phase}]; !earlier.empty()) {
        arrived = earlier.front();
        earlier.pop_front();
      }
      delays_[event.phase] += std::max(0.0, arrived - now_);
      now_ = std::max(now_, arrived);
    }
    now_ += per_flop * static_cast<double>(part.flops_before + part.flops - done);
    for (const CommEvent& event : part.events)
      if (const auto at = arrivals.find(event.request); event.starts && at != arrivals.end())
        in_flight_[{event.group, event.phase}].push_back(at->second);
  }

  static double area(const RehearsedPart& part) { return static_cast<double>(part.image_side * part.image_side); }

  /// When it has arrived.
  double start(const CommEvent& event) {
    const LinkModel links = links_of(event.group);
    const LinkModel no_latencies{{0, links.inter_node.bandwidth}, {0, links.intra_node.bandwidth}};
    const double alone = links.seconds(event.what, event.route, 1, event.bytes);
    const bool in_turn = event.route.algorithm == AllReduce::library;
    const double sending = in_turn ? alone : no_latencies.seconds(event.what, event.route, 1, event.bytes);
    sent_ = std::max(now_, sent_) + sending;
    return sent_ + alone - sending;
  }

  LinkModel links_of(const std::string& group) const {
    LinkModel links = links_;
    if (const auto at = at_once_.find(group); at != at_once_.end()) links.inter_node.bandwidth /= at->second;
    return links;
  }

  const RehearsedRank& rank_;
  LinkModel links_;
  double step_seconds_;
  std::int64_t micro_batches_ = 1;  // of a whole step
  double mean_area_ = 0;            // of the images of a step; 0: not told
  std::map<std::string, int> at_once_;
  double now_ = 0, sent_ = 0;
  std::map<std::pair<std::string, std::string>, std::deque<double>> in_flight_;  // by group and phase
  std::map<std::string, double> delays_;
  std::map<std::string, PhaseTime> times_;
};

}  // namespace

std::map<std::string, PhaseTime> replay(const RehearsedRun& run, const LinkModel& links, double step_seconds) {
  std::map<std::string, PhaseTime> slowest;
  for (const RehearsedClass& ranks : run.classes)
    for (const auto& [phase, time] : Replay(ranks.rank, links, step_seconds).run()) {
      const auto [at, is_new] = slowest.try_emplace(phase, time);
      if (!is_new && time.exposed() > at->second.exposed()) at->second = time;
    }
  return slowest;
}

}  // namespace ab
