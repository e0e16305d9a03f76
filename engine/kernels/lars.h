#pragma once
// SPDX-License-Identifier: MIT
//
// LARS (You, Gitman, Ginsburg 2017, arXiv 1708.03888): every tensor is updated at a rate of its own, in proportion to its
// norm, so that large batches can take large learning rates.
//   λ = trust · ‖w‖ / (‖g‖ + wd · ‖w‖ + ε)     v ← momentum · v + λ · (g + wd · w)     w ← w − lr · v
// λ = 1 for tensors that do not adapt (biases, norms), and where ‖w‖ or ‖g‖ is zero. Norms and rates stay on the device.
// A rank may work out the rates of some tensors only, and have the others from those that did (engine/optim/lars.cpp).

#include "engine/kernels/optim.h"

namespace ab {

struct LarsRule {
  float learning_rate, momentum;
  double trust, epsilon;
  const GradNorm* norm;  ///< null without clipping
};

/// Which slices belong to one tensor, on the device of the table.
struct LarsTensor {
  std::int64_t first, end;  ///< slices
  std::int64_t adapts;      ///< 0: λ = 1
};
struct LarsTable {
  const LarsTensor* tensors;
  const std::int64_t* tensor_of_slice;
  double* squares;  ///< of each slice, Σ g² and Σ w²
  float* rates;     ///< λ of each tensor
};

/// Tensors [first, end) and their slices.
struct LarsRange {
  std::int64_t first, end, first_slice, end_slice;
};

/// λ of the tensors of a range.
void find_rates(const SliceTable& table, const LarsTable& tensors, const LarsRange& range, const LarsRule& rule);
/// All slices, by the λ of their tensors.
void update_all(const SliceTable& table, const LarsTable& tensors, const LarsRule& rule);

namespace kernels {

/// squares[2 · slice …] = Σ g², Σ w² of one slice; row 0 is slice `first`.
struct LarsSquares {
  const ParamSlice* slices;
  double* squares;
  std::int64_t first;
  template <class Team> AB_HD void operator()(const Team& team, std::int64_t row) const {
    row += first;
    const ParamSlice& slice = slices[row];
    const auto square = [](double v) { return v * v; };
    const double g = lane_sum<double>(team, slice.count, square, slice.grad);
    const double w = lane_sum<double>(team, slice.count, square, static_cast<const float*>(slice.value));
    if (team.lane() == 0) squares[2 * row] = g, squares[2 * row + 1] = w;
  }
};

/// The rate of one tensor; row 0 is tensor `first_tensor`.
struct LarsRate {
  const ParamSlice* slices;
  LarsTable table;
  LarsRule rule;
  std::int64_t first_tensor;
  template <class Team> AB_HD void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t i = first_tensor + row;
    const LarsTensor tensor = table.tensors[i];
    double g = 0, w = 0;
    for (std::int64_t s = tensor.first + team.lane(); s < tensor.end; s += team.size())
      g += table.squares[2 * s], w += table.squares[2 * s + 1];
    g = sqrt(team.sum(g)) * (rule.norm ? rule.norm->scale : 1.0f), w = sqrt(team.sum(w));
    if (team.lane() != 0) return;
    const bool adapts = tensor.adapts != 0 && g > 0 && w > 0;
    const double decay = slices[tensor.first].weight_decay;
    table.rates[i] = adapts ? static_cast<float>(rule.trust * w / (g + decay * w + rule.epsilon)) : 1.0f;
  }
};

/// One slice.
struct LarsUpdate {
  const ParamSlice* slices;
  LarsTable table;
  LarsRule rule;
  template <class Team> AB_HD void operator()(const Team& team, std::int64_t row) const {
    const float scale = rule.norm ? rule.norm->scale : 1.0f;
    if (scale == 0) return;
    ParamSlice slice = slices[row];
    const float rate = table.rates[table.tensor_of_slice[row]];
    slice.rate *= rate, slice.weight_decay *= rate;
    const SgdUpdate update(slice, {rule.learning_rate, rule.momentum, false, nullptr}, scale);
    constexpr int width = kLaneWidth<Team, float>;
    for_each_block<width>(team, slice.count, update.template packed<width>(), update);
  }
};

}  // namespace kernels
}  // namespace ab
