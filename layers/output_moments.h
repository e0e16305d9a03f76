#pragma once
// SPDX-License-Identifier: MIT
//
// Second moments of what leaves a weight: of y = W2·x [+ b] at every position, before an activation or a norm, and of the
// gradient g = dL/dy of the loss; for spatial factors of what each row of the kernel adds to an output, without b, at a share
// of the positions, which then count as that share of the samples. They tell
// what a cut of W costs (ablowrank/loss_metric.h). While a weight is observed, each training step adds its own:
//   Σ (y − ȳ)(y − ȳ)ᵀ   about the mean ȳ of the step, which is what a batch norm behind it sees
//   Σ y, and the numbers of positions and of samples
//   (s B)² Σ g gᵀ       B samples, so B·g is the gradient of a sample's own loss where L is a mean; and s² B
// s is by how much the gradients of the pass are larger (backward_scale(): the share of a micro-batch, the loss scale of
// float16). The quotient of the last two sums is the mean over samples, whatever s was in which step, and on which rank.
// A step whose numbers are not finite adds nothing. The sums are float32, also where products in steps are not; a mean that
// is k standard deviations large costs them k² · 1e-7 of their accuracy.

#include <functional>

#include "engine/autograd/var.h"

namespace ab {

class OutputMoments {
 public:
  OutputMoments(std::int64_t channels, Device device);

  /// y, recorded so that its gradient passes by.   y: [N, …, channels]
  Var observe(const Var& y);
  /// The output of a weight where that is not y but what y is made of.
  struct Parts {
    Tensor values;                                     ///< [positions, channels] or of more dimensions
    std::function<Tensor(const Tensor& dy)> gradient;  ///< of y's that of `values`
    double share = 1;                                  ///< of all of its positions, those that are looked at
  };
  Var observe(const Var& y, const Parts& parts);

  std::int64_t channels() const { return channels_; }
  /// All sums, flat, to be added up over ranks: elements(channels) float32. The views below share its storage.
  const Tensor& sums() const { return sums_; }
  static std::int64_t elements(std::int64_t channels) { return 2 * channels * channels + channels + 3; }

  Tensor outputs() const { return matrix_at(0); }                               ///< [O, O]
  Tensor output_sum() const { return part(square(), channels_); }               ///< [O]
  Tensor positions() const { return part(square() + channels_, 1); }            ///< [1]
  Tensor samples() const { return part(square() + channels_ + 1, 1); }          ///< [1]
  Tensor gradients() const { return matrix_at(output_part()); }                 ///< [O, O]
  Tensor gradient_weight() const { return part(output_part() + square(), 1); }  ///< Σ s² B   [1]

 private:
  std::int64_t square() const { return channels_ * channels_; }
  std::int64_t output_part() const { return square() + channels_ + 2; }
  Tensor part(std::int64_t begin, std::int64_t count) const { return sums_.slice(begin, begin + count); }
  Tensor matrix_at(std::int64_t begin) const { return part(begin, square()).view({channels_, channels_}); }
  void add_outputs(const Tensor& values, double samples) const;
  void add_gradients(const Tensor& gradient, double batch, double samples) const;

  std::int64_t channels_;
  Tensor sums_;
};

}  // namespace ab
