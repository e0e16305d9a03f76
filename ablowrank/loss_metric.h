#pragma once
// SPDX-License-Identifier: MIT
//
// The cost to the loss of leaving a direction out of a weight, seen in data. A weight W2 [O × K] (O and K: its rows and
// columns, layers/weight.h) makes y = W2·x [+ b] at every position; g = dL/dy there. With
//   C = E[(y − ȳ)(y − ȳ)ᵀ]          over positions
//   G = E[Σ g gᵀ] + damping          over samples, Σ over positions: the empirical Fisher matrix of y, in place of the
//                                    Gauss–Newton curvature of the loss in y
// replacing y by ȳ + P(y − ȳ) raises the loss by ½ tr(G (I − P) C (I − P)ᵀ) to second order, where y and g at the
// positions of an image are taken to know nothing of each other. They do, and it rises by 1 to 55 times as much
// (channel factors), by a factor that differs more between weights than within one (bench/cut_loss_bench.cpp). The P
// of rank r that raises it least comes from the eigenvectors of
//   S = Lᵀ C L = V Λ Vᵀ  with  G = L Lᵀ:         P = L⁻ᵀ V_r V_rᵀ Lᵀ, and the loss rises by ½ Σ_{i>r} λ_i
// (L is Cholesky's; with G^½ in its place P and Λ are the same.)
// W2 becomes P·W2, and a bias b + (I − P)(ȳ − b), so that the mean output stays. S does not change when rows of W are
// rescaled, which a batch norm behind it undoes anyway; so the damping is relative to each channel too: ε diag(G),
// not ε I. With G = I this is the principal component analysis of outputs (Zhang et al. 2015, arXiv 1505.06798); the
// metric is that of EigenDamage (Wang et al. 2019, arXiv 1905.05934) with the outputs' own covariance. A spectrum of
// W itself tells nothing of the kind: it stays near its initial shape long after the loss depends on a few directions.

#include <cstdint>
#include <vector>

#include "ablowrank/factorise.h"
#include "layers/output_moments.h"

namespace ab {

class LossMetric {
 public:
  /// From sums over all ranks, on any device; they are finite and of at least one sample. Work in float64 on the
  /// host, about 20 O³ operations.
  explicit LossMetric(const OutputMoments& moments);

  /// ½ λ_i, descending, [O]: by how much the loss of a sample rises without direction i.
  const std::vector<double>& increases() const { return increases_; }
  /// P·W2 for the first r directions, of min(r, K) factors, in about 4 O K r operations.   w2: [O, K] float32; the
  /// result on its device
  LowRank cut(const Tensor& w2, std::int64_t r) const;
  /// (I − P)(ȳ − b): what a bias has to take over. With fewer biases than y has elements they belong to sums of as
  /// many of those each, and are not in y (spatial factors, layers/weight.h; as if each row of a kernel met every row
  /// of an image, so that rows at its edge get a little too much).   bias: [outputs] float32; the result too, on the
  /// host
  Tensor bias_change(const Tensor& bias, std::int64_t r) const;

 private:
  void take_shapes();

  std::vector<double> increases_;
  Tensor to_outputs_;     ///< L⁻ᵀ V, as rows: row i belongs to direction i   [O, O]
  Tensor to_directions_;  ///< Vᵀ Lᵀ   [O, O]
  Tensor mean_;           ///< ȳ [O, 1]
};

/// Positions a sample: how often the weight is applied to each.
double positions_per_sample(const OutputMoments& moments);

}  // namespace ab
