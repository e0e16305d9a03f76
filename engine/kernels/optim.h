#pragma once
// SPDX-License-Identifier: MIT
//
// Optimizer updates of all parameters in one launch, over a table of slices: each team takes one slice, which is a
// whole parameter or a piece of one. Clipping stays on the device as well: the update reads the factor that
// measure_grad_norm() left there.

#include <cmath>

#include "engine/core/tensor.h"
#include "engine/kernels/lanes.h"

namespace ab {

/// The part of one float32 parameter that an update changes, in device memory.
struct ParamSlice {
  const float* grad;
  float* value;
  float* first_moment;   ///< null without
  float* second_moment;  ///< null without
  std::int64_t count;    ///< elements
  std::int64_t updates;  ///< of the parameter, less the age of the table
  float weight_decay;
  float rate = 1;  ///< of what the gradient changes, beside that of the rule

  bool operator==(const ParamSlice&) const = default;
};

/// The most elements of one slice: on a GPU, sixteen for each lane of a block.
inline constexpr std::int64_t kSliceElements = 4096;

/// Slices of all parameters, on `device`.
struct SliceTable {
  Device device;
  const ParamSlice* slices;
  std::int64_t count;
};

/// The norm of all gradients together, before clipping.
struct GradNorm {
  double norm;
  float scale;  ///< what gradients are multiplied by; 0: one is not finite, and the update is left out
};

/// *result = the L2 norm of all gradients and the factor that makes it max_norm at most (infinity: no clipping).
/// `partial`: one double for each slice.
void measure_grad_norm(const SliceTable& table, double max_norm, double* partial, GradNorm* result);

/// The rule of an update, common to all parameters. `norm` may be null: no clipping.
struct SgdRule {
  float learning_rate, momentum;
  bool nesterov;
  const GradNorm* norm;
};
struct AdamWRule {
  float learning_rate, epsilon;
  double beta1, beta2;
  std::int64_t age;  ///< of the table
  const GradNorm* norm;
};
void update_all(const SliceTable& table, const SgdRule& rule);
void update_all(const SliceTable& table, const AdamWRule& rule);

namespace kernels {

/// g ← scale · rate · g + wd · w;  v ← momentum · v + g;  w ← w − lr · (nesterov ? g + momentum · v : v)
struct SgdUpdate {
  const float* grad;
  float* value;
  float* momentum_buffer;
  float learning_rate, momentum, weight_decay, grad_scale;
  bool nesterov;

  AB_HD SgdUpdate(const ParamSlice& p, const SgdRule& rule, float scale)
      : grad(p.grad),
        value(p.value),
        momentum_buffer(p.first_moment),
        learning_rate(rule.learning_rate),
        momentum(rule.momentum),
        weight_decay(p.weight_decay),
        grad_scale(scale * p.rate),
        nesterov(rule.nesterov) {}

  template <int N> AB_HD bool packed() const { return packable<N>(N, grad, value, momentum_buffer); }

  template <class Count> AB_HD void operator()(std::int64_t i, Count count) const {
    const auto gs = load(grad + i, count), ws = load(value + i, count), vs = load(momentum_buffer + i, count);
    Store new_ws(value + i, count), new_vs(momentum_buffer + i, count);
    for (int j = 0; j < count; ++j) {
      const float w = ws[j], g = grad_scale * gs[j] + weight_decay * w, v = momentum * vs[j] + g;
      new_vs[j] = v;
      new_ws[j] = w - learning_rate * (nesterov ? g + momentum * v : v);
    }
  }
};

/// m ← β1 m + (1 − β1) g;  v ← β2 v + (1 − β2) g²;  w ← w − lr · (rate · m / c1 / (sqrt(v / c2) + eps) + wd · w)
/// with the bias corrections c1 = 1 − β1^t and c2 = 1 − β2^t of update t.
struct AdamWUpdate {
  const float* grad;
  float* value;
  float* first_moment;
  float* second_moment;
  float learning_rate, beta1, beta2, epsilon, weight_decay, grad_scale, correction1, correction2;

  AB_HD AdamWUpdate(const ParamSlice& p, const AdamWRule& rule, float scale)
      : grad(p.grad),
        value(p.value),
        first_moment(p.first_moment),
        second_moment(p.second_moment),
        learning_rate(rule.learning_rate * p.rate),
        beta1(static_cast<float>(rule.beta1)),
        beta2(static_cast<float>(rule.beta2)),
        epsilon(rule.epsilon),
        weight_decay(p.weight_decay / p.rate),
        grad_scale(scale),
        correction1(correction(rule.beta1, p.updates + rule.age)),
        correction2(correction(rule.beta2, p.updates + rule.age)) {}

  template <int N> AB_HD bool packed() const { return packable<N>(N, grad, value, first_moment, second_moment); }

  template <class Count> AB_HD void operator()(std::int64_t i, Count count) const {
    const auto gs = load(grad + i, count), ws = load(value + i, count);
    const auto ms = load(first_moment + i, count), vs = load(second_moment + i, count);
    Store new_ws(value + i, count), new_ms(first_moment + i, count), new_vs(second_moment + i, count);
    for (int j = 0; j < count; ++j) {
      const float w = ws[j], g = grad_scale * gs[j];
      const float m = beta1 * ms[j] + (1.0f - beta1) * g, v = beta2 * vs[j] + (1.0f - beta2) * g * g;
      new_ms[j] = m;
      new_vs[j] = v;
      const float direction = (m / correction1) / (sqrtf(v / correction2) + epsilon);
      new_ws[j] = w - learning_rate * (direction + weight_decay * w);
    }
  }

 private:
  AB_HD static float correction(double beta, std::int64_t t) {
    return static_cast<float>(1.0 - std::pow(beta, static_cast<double>(t)));
  }
};

/// One slice per team.
template <class Update, class Rule> struct UpdateSlices {
  const ParamSlice* slices;
  Rule rule;
  template <class Team> AB_HD void operator()(const Team& team, std::int64_t row) const {
    const float scale = rule.norm ? rule.norm->scale : 1.0f;
    if (scale == 0) return;
    const std::int64_t n = slices[row].count;
    const Update update(slices[row], rule, scale);
    constexpr int width = kLaneWidth<Team, float>;
    for_each_block<width>(team, n, update.template packed<width>(), update);
  }
};

/// partial[slice] = Σ g² of one slice.
struct SliceSquares {
  const ParamSlice* slices;
  double* partial;
  template <class Team> AB_HD void operator()(const Team& team, std::int64_t row) const {
    const double total = lane_sum<double>(
        team, slices[row].count, [](double g) { return g * g; }, slices[row].grad);
    if (team.lane() == 0) partial[row] = total;
  }
};

/// One row: the norm of all slices.
struct FinishNorm {
  const double* partial;
  std::int64_t count;
  double max_norm;
  GradNorm* result;
  template <class Team> AB_HD void operator()(const Team& team, std::int64_t) const {
    const double norm = std::sqrt(lane_sum<double>(
        team, count, [](double square) { return square; }, partial));
    if (team.lane() != 0) return;
    const bool finite = norm - norm == 0;
    const double factor = max_norm / (norm + 1e-6);
    *result = {norm, finite ? static_cast<float>(factor < 1 ? factor : 1.0) : 0.0f};
  }
};

}  // namespace kernels
}  // namespace ab
