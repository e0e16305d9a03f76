#pragma once
// SPDX-License-Identifier: MIT
//
// The settings of the late cut (late_cut.h), and when it observes and cuts: a pure function of the number of updates
// done.

#include <cstdint>
#include <vector>

#include "engine/sync/batch_norm_sync.h"
#include "layers/weight.h"

namespace ab {

/// How the ranks r of a cut are chosen.
enum class RanksBy {
  loss_share,   ///< the cheapest directions that hold a share of the loss, in the mean over weights (loss_ranks.h)
  loss_budget,  ///< the directions of most sensitivity for their cost, within a budget of all weights (loss_ranks.h)
  ratio,        ///< the same share of n of every weight
};

struct LateCutOptions {
  std::vector<double> at{0.7};  ///< when weights are cut: shares of the run, rising, each in (0, 1)
  RanksBy rank_policy = RanksBy::loss_share;
  std::vector<double> keep{};  ///< each in (0, 1]: the share or budget of every cut, or one for all; empty: see kept()
  std::int64_t rank_multiple = 1;  ///< r is rounded up to a multiple of this
  std::int64_t gather_steps = 20;  ///< at most so many steps before a cut are observed
  ConvFactors conv_factors = ConvFactors::spatial;
  Execution execution = Execution::automatic;
  SyncBn sync_bn = SyncBn::off;

  bool operator==(const LateCutOptions&) const = default;
  /// Throws Error(config) when settings exclude each other.
  void validate() const;
  /// The share that cut number `index` keeps; when not given 0.995 as a share of the loss, 0.25 as a budget, 0.5 as a
  /// ratio.
  double kept(std::size_t index) const;
};

class CutSchedule {
 public:
  /// Cuts at these shares of `total_steps`; one that would fall on a validation, every `evaluation_period` steps,
  /// comes a step later, or earlier at the end of a run: running statistics of batch norm need some steps to follow
  /// (where every step is validated, they are not given any). Where fewer steps lie before a cut than are to be
  /// observed, all of them are. Throws Error(config) when there is no step before a cut, or none after the last.
  CutSchedule(const LateCutOptions& options, std::int64_t total_steps, std::int64_t evaluation_period);

  /// How many cuts have been made once `step` updates are done.
  std::size_t cuts_until(std::int64_t step) const;
  bool cuts_at(std::int64_t step) const;
  /// Whether the update that follows `step` updates is observed.
  bool observes_at(std::int64_t step) const;
  const std::vector<std::int64_t>& cuts() const { return cuts_; }

 private:
  std::vector<std::int64_t> cuts_;
  std::int64_t gather_steps_;
};

}  // namespace ab
