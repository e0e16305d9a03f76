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

#include <map>
#include <string>

#include "engine/comm/comm.h"
#include "engine/io/state_dict.h"
#include "engine/sync/artopk_cost.h"

namespace ab {

class ArtopkSwitch {
 public:
  static constexpr const char* kProbe = "probe";  ///< phase of the measurements
  static constexpr std::int64_t kSmallBytes = 4, kLargeBytes = std::int64_t{1} << 20, kTimes = 3;
  /// All-reduces of a measurement: so many small ones, as many large ones less one, then two float64.
  static constexpr std::int64_t kSmallCalls = kTimes + 1, kLargeCalls = kTimes, kAgreedBytes = 16;

  struct Options {
    ArtopkPayload payload{};
    std::int64_t every = 1;  ///< steps of a period
    bool is_given = false;   ///< the ledger's links are those of the network
  };
  ArtopkSwitch(Comm& world, Device device, const Options& options)
      : world_(world), device_(device), options_(options) {}

  /// The way of compressed step number `step`, which is counted. Collective where a period begins.
  ArtopkWay next(std::int64_t step);

  /// Steps so far.
  std::int64_t steps() const;
  /// Steps so far by each way, and the figures of the present period.
  std::map<std::string, std::int64_t> decision() const;
  /// The name of such steps in a decision.
  static std::string steps_name(ArtopkWay way) { return fmt::format("{}_steps", name_of(way)); }

  void save(StateDict& state, const std::string& prefix) const;
  void load(const StateDict& saved, const std::string& prefix);

 private:
  Link measure() const;

  Comm& world_;
  Device device_;
  Options options_;
  ArtopkWay way_ = ArtopkWay::ring;
  Link link_{};
  std::map<ArtopkWay, std::int64_t> steps_{{ArtopkWay::ring, 0}, {ArtopkWay::tree, 0}, {ArtopkWay::gather, 0}};
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
