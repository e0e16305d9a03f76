#pragma once
// SPDX-License-Identifier: MIT
//
// The cut: all weights of a model become factors of ranks that are chosen together, and stay factors. What decides is
// observed over some ordinary training steps before (layers/output_moments.h) and added up over ranks.
// Traffic:
//   an all-reduce of OutputMoments::elements(rows) floats for each weight
//   an all-reduce of float64, for each weight the positions a sample, the increase without each direction (one for
//   each row), and shares of the sum of squared singular values
//   an all-reduce of a float for each output of the weights that are cut: what biases take over
// then, as at a split (split.h), an all-reduce of a number per weight, and from each owner a broadcast of its factors.

#include <memory>
#include <vector>

#include "ablowrank/cut_schedule.h"
#include "ablowrank/split.h"
#include "engine/io/metrics_log.h"
#include "engine/io/state_dict.h"
#include "layers/output_moments.h"

namespace ab {

/// The observers of the weights that a cut is about.
class CutObservers {
 public:
  /// From here on, until it is destroyed, the outputs of training steps are observed.
  explicit CutObservers(const std::vector<Weight*>& weights);
  ~CutObservers();
  CutObservers(const CutObservers&) = delete;
  CutObservers& operator=(const CutObservers&) = delete;

  const OutputMoments& of(std::size_t weight) const { return *moments_[weight]; }
  std::size_t size() const { return moments_.size(); }

  void save(StateDict& state) const;
  void load(const StateDict& state);

 private:
  std::vector<Weight*> weights_;
  std::vector<std::unique_ptr<OutputMoments>> moments_;
};

/// The rank of every weight that keeps the share `ratio` of its directions, rounded up to a multiple; n for one whose
/// factors would not be smaller, which stays dense.
std::vector<std::int64_t> ranks_by_ratio(const std::vector<Weight*>& weights, double ratio, std::int64_t multiple);

/// A weight after a cut.
struct CutResult {
  Weight* weight = nullptr;
  LowRank parts;       ///< undefined where it stays dense
  Tensor bias_change;  ///< [O] float32 on the host; undefined where nothing is taken over
  LayerSensitivity sensitivity{};
};

/// Collective over `world`; on return all ranks hold bitwise equal results for the dense `weights`. `earlier_ranks`:
/// of each weight, that of the factors that it is the product of, 0 where it has been dense; where the loss decides,
/// r does not rise above it. `observers`: those of the same weights; they hold the sums over all ranks afterwards.
/// `biases`: of each weight, or null. Throws Error(numerics) on all ranks when no step was observed whose numbers are
/// finite.
std::vector<CutResult> cut_all(const std::vector<Weight*>& weights, const std::vector<std::int64_t>& earlier_ranks,
                               const std::vector<Param*>& biases, const CutObservers& observers,
                               const LateCutOptions& options, std::size_t index, Comm& world);

/// The bias that belongs to each weight, by its name; null where there is none.
std::vector<Param*> biases_of(const std::vector<Weight*>& weights, Layer& model);

}  // namespace ab
