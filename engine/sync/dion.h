#pragma once
// SPDX-License-Identifier: MIT
//
// Dion (Ahn, Xu, Abreu, Langford 2025, arXiv 2504.05295; microsoft/dion): orthonormal updates of weights as Muon has them,
// of rank r, from momentum that no rank ever sends. With rows as factors, on rank w, of a weight of n outputs that is a matrix
// whose longer side P is as long as:
//   M_w = M_w + G_w                           the rank's own momentum
//   P   = orthonormal rows of mean Q·M_w      all-reduce; Q is that of the step before
//   R   = mean P·M_w                          all-reduce
//   M_w = M_w − (1 − μ)·Pᵀ·R                  what was not sent stays: error feedback and decay of momentum in one
//   Q   = rows of R, of length one
//   Ĝ   = sqrt(outputs / inputs)·Pᵀ·Q         equal on all ranks
// P and R are linear in M, so the weights are those of one rank with the mean gradient, whatever M the ranks have. Rows of R
// that are rounding beside the longest stay out of Ĝ. All else (vectors, the first layer, the classifier) takes the direction of
// Adam from its mean gradient. Ĝ and these directions are updates: the optimizer is to be SGD without momentum, whose
// weight decay is decoupled then. Factors travel for every weight, also where they are as large as it is.

#include "engine/sync/compressed_gradients.h"
#include "engine/sync/low_rank_gradients.h"

namespace ab {

struct DionOptions {
  double rank = 0.25;      ///< r as a share of the smaller side of a weight, above 0, up to 1
  double momentum = 0.95;  ///< μ

  bool operator==(const DionOptions&) const = default;
};

class DionStrategy final : public CompressedGradients {
 public:
  static constexpr const char* kName = "dion";

  DionStrategy(Replica replica, Comm& world, const DionOptions& options, const CompressionStart& start);

 private:
  std::vector<Param*> begin(std::int64_t step) override;
  void exchange(std::int64_t step) override;
  void save_compression(StateDict& state) const override;
  void load_compression(const StateDict& saved) override;

  /// The gradients of all but weights become directions of Adam.
  void direct_rest();

  DionOptions options_;
  std::unique_ptr<LowRankGradients> gradients_;
  std::vector<Tensor> updates_;  // of each matrix what Pᵀ is multiplied by for Ĝ: [r, short side]
  // A parameter of zeros for each of the rest: one update of Adam at rate 1 leaves the direction there, negative.
  std::vector<Param*> rest_;
  std::vector<Param> directions_;
  std::unique_ptr<Optimizer> adam_;
};

}  // namespace ab
