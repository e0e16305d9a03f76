#pragma once
// SPDX-License-Identifier: MIT
//
// AR-Topk's choices (Tyagi & Swany, IEEE BigData 2023, arXiv 2312.02493): of a way for the selected elements, by a model of
// its cost, and, if asked, of the ratio of elements that are sent.

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/comm/comm.h"
#include "engine/io/state_dict.h"

namespace ab {

// The cost of a step (Table I and eq. 4). With N ranks, latency alpha, beta seconds a byte, log = log2 (not rounded up) and
// M bytes,
//   ring all-reduce    2 (N-1) alpha + 2 (N-1)/N M beta
//   tree all-reduce    2 log N alpha + 2 log N M beta
//   broadcast          log N alpha + log N M beta
//   all-gather         log N alpha + (N-1) M beta            M of each rank
// These are not the times of our transport (engine/comm/network.h), which moves a broadcast and an all-gather in
// fewer rounds: they are what the method switches by.

double ring_seconds(int ranks, double bytes, const Link& link);
double tree_seconds(int ranks, double bytes, const Link& link);
double broadcast_seconds(int ranks, double bytes, const Link& link);
double gather_seconds(int ranks, double bytes, const Link& link);

/// How the selected elements of a step travel.
enum class ArtopkWay : std::uint8_t {
  ring,    ///< one rank's indices by broadcast, values by a ring all-reduce
  tree,    ///< the same, by a tree
  gather,  ///< every rank's own indices and values by an all-gather
};
constexpr ArtopkWay kArtopkWays[] = {ArtopkWay::ring, ArtopkWay::tree, ArtopkWay::gather};
const char* name_of(ArtopkWay way);

/// The bytes that a step sends of its k elements.
struct ArtopkPayload {
  double index_bytes = 0;     ///< of k indices
  double summed_bytes = 0;    ///< of k values in an all-reduce
  double gathered_bytes = 0;  ///< of k indices and values in an all-gather
};
/// 32-bit indices; values are of 32 bits in an all-gather, and of `wire_bytes` each in an all-reduce.
ArtopkPayload artopk_payload(std::int64_t k, std::int64_t wire_bytes = 4);

double artopk_seconds(ArtopkWay way, int ranks, const ArtopkPayload& payload, const Link& link);
/// The shortest; of equal ones the first.
ArtopkWay fastest_way(int ranks, const ArtopkPayload& payload, const Link& link);

/// The link by which ring all-reduces of these sizes take these times; at least two ranks, large_bytes > small_bytes.
/// Never better than without latency or 10 TB/s: measured times may contradict each other.
Link link_of_ring(int ranks, double small_bytes, double small_seconds, double large_bytes, double large_seconds);
/// The one that a group's messages take: the one between nodes, if they are on several.
const Link& link_of_group(const Layout& group, const LinkModel& links);

// The adaptive ratio (eq. 6): the c in [c_low, c_high] that weighs time against information,
//   minimise  ( t_sync(c), 1/gain(c) ),     gain(c) = ‖largest c·G of M‖² / ‖M‖²
// The authors fit curves through five ratios and search them by NSGA-II. With one variable, all ratios of a grid can be
// tried: those that no other beats in both are the front, both aims are scaled to [0, 1] over it, and the chosen one has
// the smallest  max(0.6 · time, 0.4 · 1/gain), with their weights. They measure a gain by ten steps with each
// ratio from a copy of the model; here all gains come from one M, since selections of fewer elements are parts of those of
// more. That leaves out what a ratio does to the residual in the long run.

/// Elements to send of n, from the most to the fewest, each number once: ratios at equal distances on a logarithmic
/// scale, at least four a decade, `most` and `least` among them.
std::vector<std::int64_t> adaptive_elements(double least, double most, std::int64_t n);

/// gain() for every number of elements, which fall. x: float32 [n]. Not finite where x is not, or is all zeros.
std::vector<double> gains_of(const Tensor& x, const std::vector<std::int64_t>& elements);

struct RatioTrial {
  double seconds = 0;  ///< modelled time of a step's communication
  double gain = 0;     ///< in (0, 1]
};
/// Which of them to use; of equal ones the first. Nothing when a gain is not above zero.
std::optional<std::size_t> best_trial(std::span<const RatioTrial> trials);

/// Anew at the start of every period it takes the way that the model finds fastest with the latency and bandwidth of the network. Those are given (--network), or
/// measured: a ring all-reduce of one float and one of 1 MiB take
///   T = 2 (N-1) alpha + 2 (N-1)/N M beta
/// each, the shortest of three times counts, and the mean over ranks of alpha and beta lets all decide alike. A measured
/// choice depends on the machine at that moment; one by given figures does not, and such a run repeats.
/// The model takes every rank for a node; with several on a node the link between nodes counts. Where a library carries
/// all-reduces (NCCL), ring or tree is its own choice, and ours is whether to gather.
/// With several numbers of elements to choose from, a period begins with that choice too, from the times of
/// the fastest way of each and the mean over ranks of their gains.
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
