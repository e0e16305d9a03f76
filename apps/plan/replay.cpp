// SPDX-License-Identifier: MIT
#include "apps/plan/replay.h"

#include <algorithm>
#include <deque>
#include <limits>
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

/// A rank's run once more. The events of a part are prepared once, as it comes many times.
class Replay {
 public:
  Replay(const RehearsedRank& rank, const LinkModel& links, double step_seconds)
      : rank_(rank), links_(links), step_seconds_(step_seconds), at_once_(groups_at_once(rank)) {
    double images = 0, pixels = 0;  // in units of a micro-batch
    for (const RehearsedPart& part : rank.parts) {
      micro_batches_ = std::max(micro_batches_, part.micro_batches);
      const auto count = static_cast<double>(part.times * part.micro_batches);
      images += count, pixels += count * area(part);
      parts_.push_back(prepare(part));
    }
    if (pixels > 0) mean_area_ = pixels / images;
  }

  std::map<std::string, PhaseTime> run() {
    std::map<std::string, PhaseTime> times;
    for (const auto& [phase, sent] : rank_.ledger.by_phase()) times[phase] = {};
    for (std::size_t i = 0; i < parts_.size(); ++i)
      for (const Event& event : parts_[i].events)
        if (event.starts)
          times[phases_[event.phase]].communication += static_cast<double>(rank_.parts[i].times) * event.alone;
    if (step_seconds_ == 0) return times;
    for (const auto& [part, count] : rank_.order) go_through(part, count);
    for (auto& [phase, time] : times) {
      const std::size_t at = index_in(phases_, phase);
      time.hidden = std::max(0.0, time.communication - (at < delays_.size() ? delays_[at] : 0));
    }
    return times;
  }

 private:
  static constexpr std::size_t kEarlierPart = std::numeric_limits<std::size_t>::max();

  struct Event {
    std::int64_t flops;
    bool starts;
    std::size_t phase, stream;  // of phases_ and streams_
    std::size_t request;        // of the part's own, or kEarlierPart
    double alone = 0;           // seconds with nothing else on the wire
    double sending = 0;         // of these, what keeps others waiting
  };
  struct Part {
    std::vector<Event> events;
    std::vector<double> arrivals;   // of its requests
    std::vector<std::size_t> left;  // events that start what later parts wait for
  };

  template <class T> static std::size_t index_in(std::vector<T>& all, const T& one) {
    const auto at = std::ranges::find(all, one);
    if (at != all.end()) return static_cast<std::size_t>(at - all.begin());
    all.push_back(one);
    return all.size() - 1;
  }

  Part prepare(const RehearsedPart& rehearsed) {
    Part part;
    std::map<std::int64_t, std::size_t> open;  // events by their requests
    for (const CommEvent& event : rehearsed.events) {
      Event prepared{.flops = event.flops,
                     .starts = event.starts,
                     .phase = index_in(phases_, event.phase),
                     .stream = index_in(streams_, std::pair(event.group, event.phase)),
                     .request = kEarlierPart};
      if (event.starts) {
        const LinkModel links = links_of(event.group);
        const LinkModel no_latencies{{0, links.inter_node.bandwidth}, {0, links.intra_node.bandwidth}};
        const bool in_turn = event.route.algorithm == AllReduce::library;
        prepared.alone = links.seconds(event.what, event.route, 1, event.bytes);
        prepared.sending = in_turn ? prepared.alone : no_latencies.seconds(event.what, event.route, 1, event.bytes);
        prepared.request = part.arrivals.size();
        part.arrivals.push_back(0);
        open[event.request] = part.events.size();
      } else if (const auto own = open.find(event.request); own != open.end()) {
        prepared.request = part.events[own->second].request;
        open.erase(own);
      }
      part.events.push_back(prepared);
    }
    for (const auto& [request, event] : open) part.left.push_back(event);
    std::ranges::sort(part.left);
    return part;
  }

  /// Parts in a row come to go alike.
  void go_through(std::size_t part, std::int64_t times) {
    constexpr std::int64_t kTaken = 16;
    in_flight_.resize(streams_.size()), delays_.resize(phases_.size());
    for (std::int64_t i = 1; i < std::min(times, kTaken); ++i) go_through_once(part);
    const std::vector<double> before = delays_;
    go_through_once(part);
    for (std::size_t i = 0; i < delays_.size(); ++i)
      delays_[i] += (delays_[i] - before[i]) * static_cast<double>(std::max<std::int64_t>(0, times - kTaken));
  }

  void go_through_once(std::size_t index) {
    const RehearsedPart& of_rank = rank_.parts[index];
    Part& part = parts_[index];
    const double size = mean_area_ > 0 ? area(of_rank) / mean_area_ : 1;
    const double share = size * static_cast<double>(of_rank.micro_batches) / static_cast<double>(micro_batches_);
    const double per_flop = of_rank.flops > 0 ? step_seconds_ * share / static_cast<double>(of_rank.flops) : 0;
    std::int64_t done = of_rank.flops_before;
    for (const Event& event : part.events) {
      now_ += per_flop * static_cast<double>(event.flops - done);
      done = event.flops;
      if (event.starts) {
        sent_ = std::max(now_, sent_) + event.sending;
        part.arrivals[event.request] = sent_ + event.alone - event.sending;
        continue;
      }
      double arrived = now_;
      if (event.request != kEarlierPart) {
        arrived = part.arrivals[event.request];
      } else if (auto& earlier = in_flight_[event.stream]; !earlier.empty()) {
        arrived = earlier.front();
        earlier.pop_front();
      }
      delays_[event.phase] += std::max(0.0, arrived - now_);
      now_ = std::max(now_, arrived);
    }
    now_ += per_flop * static_cast<double>(of_rank.flops_before + of_rank.flops - done);
    for (const std::size_t event : part.left)
      in_flight_[part.events[event].stream].push_back(part.arrivals[part.events[event].request]);
  }

  static double area(const RehearsedPart& part) { return static_cast<double>(part.image_side * part.image_side); }

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
  std::vector<std::string> phases_;
  std::vector<std::pair<std::string, std::string>> streams_;  // group and phase
  std::vector<Part> parts_;                                   // as those of the rank
  double now_ = 0, sent_ = 0;
  std::vector<std::deque<double>> in_flight_;  // arrivals by stream
  std::vector<double> delays_;                 // by phase
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
