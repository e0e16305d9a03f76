#pragma once
// SPDX-License-Identifier: MIT
//
// AR-Topk's choice of a way for the selected elements (arXiv 2312.02493), anew at the start of every period: the one
// that artopk_cost.h finds fastest with the latency and bandwidth of the network. Those are given (--network), or
// measured: a ring all-reduce of one float and one of 1 MiB take
//   T = 2 (N-1) alpha + 2 (N-1)/N M beta
// each, the shortest of three times counts, and the mean over ranks of alpha and beta lets all decide alike. A measured
// choice depends on the machine at that moment; one by given figures does not, and such a run repeats.
// The model takes every rank for a node; with several on a node the link between nodes counts. Where a library carries
// all-reduces (NCCL), ring or tree is its own choice, and ours is whether to gather.
// With several numbers of elements to choose from, a period begins with that choice too (artopk_ratio.h), from the times of
// the fastest way of each and the mean over ranks of their gains.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/comm/comm.h"
#include "engine/io/state_dict.h"
#include "engine/sync/artopk_cost.h"
#include "engine/sync/artopk_ratio.h"

namespace ab {

class ArtopkSwitch {
 public:
  static constexpr const char* kProbe = "probe";  ///< phase of the measurements
  static constexpr std::int64_t kSmallBytes = 4, kLargeBytes = std::int64_t{1} << 20, kTimes = 3;

  struct Options {
    std::vector<std::int64_t> elements;  ///< to send in a step: one number, or several to choose from, the most first
    std::int64_t wire_bytes = 4;         ///< of a value in an all-reduce
    std::int64_t every = 1;              ///< steps of a period
    bool is_given = false;               ///< the ledger's links are those of the network
  };
  ArtopkSwitch(Comm& world, Device device, Options options)
      : world_(world), device_(device), options_(std::move(options)) {}

  /// The way of compressed step number `step`, which is counted; elements() are what it sends. Collective where a period
  /// begins, with this rank's gains if there is a choice of elements.
  ArtopkWay next(std::int64_t step, const std::function<std::vector<double>()>& gains = {});
  std::int64_t elements() const { return options_.elements[chosen_]; }
  const std::vector<std::int64_t>& choices() const { return options_.elements; }

  /// Tells apart compressed steps that send other things (SyncStrategy::step_kind()).
  std::int64_t kind(std::int64_t step) const;

  /// Steps so far.
  std::int64_t steps() const;
  /// Steps so far by each way, and the figures of the present period.
  std::map<std::string, std::int64_t> decision() const;
  /// The name of such steps in a decision, and of those that sent so many elements where that is a choice.
  static std::string steps_name(ArtopkWay way) { return fmt::format("{}_steps", name_of(way)); }
  static std::string steps_name(ArtopkWay way, std::int64_t elements) {
    return fmt::format("{}_steps_of_{}", name_of(way), elements);
  }

  void save(StateDict& state, const std::string& prefix) const;
  void load(const StateDict& saved, const std::string& prefix);

 private:
  /// A way, and the number of a number of elements.
  using Choice = std::pair<ArtopkWay, std::size_t>;

  std::optional<Choice> told_choice(std::int64_t step) const;
  bool adapts() const { return options_.elements.size() > 1; }
  Link measure() const;
  void choose_elements(const std::vector<double>& gains);
  ArtopkPayload payload(std::size_t i) const { return artopk_payload(options_.elements[i], options_.wire_bytes); }
  std::string steps_name(const Choice& choice) const;

  Comm& world_;
  Device device_;
  Options options_;
  ArtopkWay way_ = ArtopkWay::ring;
  std::size_t chosen_ = 0;
  Link link_{};
  std::map<Choice, std::int64_t> steps_;  // those that have been taken
};

/// All-reduces travel so while this lives (Ledger::use_all_reduce).
class AllReduceScope {
 public:
  AllReduceScope(Ledger& ledger, AllReduce algorithm) : ledger_(ledger), before_(ledger.use_all_reduce(algorithm)) {}
  ~AllReduceScope() { ledger_.use_all_reduce(before_); }
  AllReduceScope(const AllReduceScope&) = delete;
  AllReduceScope& operator=(const AllReduceScope&) = delete;

 private:
  Ledger& ledger_;
  AllReduce before_;
};

}  // namespace ab
