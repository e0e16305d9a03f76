#pragma once
// SPDX-License-Identifier: MIT
//
// Softmax cross entropy with label smoothing s over C classes, averaged over N rows. Each row has two labels a
// and b, of shares λ and 1 − λ (mixup, CutMix); without mixing, a = b and λ = 1.
//   loss = 1/N Σ_rows (lse − (1 − s) · (λ z_a + (1 − λ) z_b) − s/C · Σ_c z_c),   lse = log Σ_c exp z_c
//   dz_c = dloss / N · (exp(z_c − lse) − (1 − s) · (λ [c = a] + (1 − λ) [c = b]) − s/C)
// logits z: [N, C], labels: [N] int64 in [0, C); the loss of a row with any other label is NaN.

#include <cmath>
#include <limits>

#include "engine/core/tensor.h"
#include "engine/kernels/lanes.h"

namespace ab {

/// The targets of the rows of logits.
struct ClassTargets {
  Tensor labels;        ///< a: [N] int64
  Tensor mixed_labels;  ///< b: [N] int64
  Tensor share;         ///< λ: [1] float32; undefined: 1
  float smoothing = 0;  ///< s
};

struct SoftmaxCrossEntropyResult {
  Tensor loss;  ///< [1], computing type
  Tensor lse;   ///< [N], computing type
};
SoftmaxCrossEntropyResult softmax_cross_entropy_forward(const Tensor& logits, const ClassTargets& targets);
/// `dloss`: [1] of the computing type.
Tensor softmax_cross_entropy_backward(const Tensor& dloss, const Tensor& logits, const ClassTargets& targets,
                                      const Tensor& lse);

/// Per row, how many logits stand before that of the label. -> [N] int64
Tensor count_logits_before_label(const Tensor& logits, const Tensor& labels);

namespace kernels {

template <class C> AB_HD C share_or_one(const float* share) { return share ? static_cast<C>(*share) : C{1}; }

/// One row per team.
template <class T> struct SoftmaxCrossEntropy {
  using C = compute_t<T>;
  const T* logits;
  const std::int64_t *labels, *mixed_labels;
  C* row_loss;
  C* lse;
  std::int64_t classes;
  const float* share;  // null: 1
  C smoothing;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t row) const {
    const T* z = logits + row * classes;
    const auto same = [](C v) { return v; };
    const C largest = lane_max<C>(team, classes, -std::numeric_limits<C>::infinity(), same, z);
    const C sum_exp = lane_sum<C>(
        team, classes, [=](C v) { return std::exp(v - largest); }, z);
    const C sum = smoothing == 0 ? C{0} : lane_sum<C>(team, classes, same, z);
    if (team.lane() != 0) return;
    const C a = share_or_one<C>(share);
    const C of_label = a * logit(z, labels[row]) + (C{1} - a) * logit(z, mixed_labels[row]);
    lse[row] = largest + std::log(sum_exp);
    row_loss[row] = lse[row] - (C{1} - smoothing) * of_label - smoothing / static_cast<C>(classes) * sum;
  }

  AB_HD C logit(const T* z, std::int64_t label) const {
    const bool exists = 0 <= label && label < classes;
    return exists ? static_cast<C>(z[label]) : std::numeric_limits<C>::quiet_NaN();
  }
};

/// One row per team.
template <class T> struct SoftmaxCrossEntropyBackward {
  using C = compute_t<T>;
  const C* dloss;
  const T* logits;
  const std::int64_t *labels, *mixed_labels;
  const C* lse;
  T* dlogits;
  std::int64_t rows, classes;
  const float* share;  // null: 1
  C smoothing;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t row) const {
    const T* z = logits + row * classes;
    T* dz = dlogits + row * classes;
    const C scale = *dloss / static_cast<C>(rows), shift = lse[row], spread = smoothing / static_cast<C>(classes),
            first = share_or_one<C>(share);
    const std::int64_t a = labels[row], b = mixed_labels[row];
    const C of_a = (C{1} - smoothing) * first, of_b = (C{1} - smoothing) * (C{1} - first);
    const auto gradient = [=](std::int64_t c, C v) {
      const C target = spread + (c == a ? of_a : C{0}) + (c == b ? of_b : C{0});
      return scale * (std::exp(v - shift) - target);
    };
    lane_map(team, classes, dz, gradient, z);
  }
};

/// One row: the mean of all row losses, summed in double.
template <class C> struct MeanLoss {
  const C* row_loss;
  C* loss;
  std::int64_t rows;
  template <class Team> AB_HD void operator()(const Team& team, std::int64_t) const {
    const double sum = lane_sum<double>(
        team, rows, [](C v) { return static_cast<double>(v); }, row_loss);
    if (team.lane() == 0) *loss = static_cast<C>(sum / static_cast<double>(rows));
  }
};

/// One row per team: how many logits stand before that of the label, which must exist. NaN stands before every number,
/// so that a diverged model scores no hits.
template <class T> struct LabelPosition {
  using C = compute_t<T>;
  const T* logits;
  const std::int64_t* labels;
  std::int64_t* position;
  std::int64_t classes;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t row) const {
    const T* z = logits + row * classes;
    const std::int64_t label = labels[row];
    const auto of_label = static_cast<C>(z[label]);
    const auto stands_before = [=](std::int64_t c, C v) {
      const bool behind = v < of_label || (v == of_label && c > label);
      return c != label && !behind ? 1 : 0;
    };
    const int before = lane_sum<int>(team, classes, stands_before, z);
    if (team.lane() == 0) position[row] = before;
  }
};

}  // namespace kernels
}  // namespace ab
