#pragma once
// SPDX-License-Identifier: MIT
//
// Whether any of several tensors holds NaN or infinity, as a number that stays on the device: kernels that come later
// read it there, and nobody waits.

#include "engine/kernels/reduce_functors.h"

namespace ab {

class FiniteCheck {
 public:
  explicit FiniteCheck(Device device) : failed_(Tensor::zeros({1}, DType::float64, device)) {}
  /// Shares what failed() of another is.
  explicit FiniteCheck(const Tensor& failed) : failed_(failed) {}

  void reset() const { failed_.set_zero(); }
  void add(const Tensor& t) const;
  /// The same for sums, float64, that a kernel has taken: each is zero, or NaN.
  void add_sums(const Tensor& sums) const;
  /// [1] float64: zero, or NaN when an element of a tensor that was added is not finite.
  const Tensor& failed() const { return failed_; }
  /// to = kept if there is one, or else good. Float32; `to` may be one of them.
  void choose(const Tensor& to, const Tensor& good, const Tensor& kept) const;

 private:
  Tensor failed_;
};

namespace kernels {

struct ChooseGood {
  const double* failed;
  AB_HD float operator()(float good, float kept) const { return *failed == 0 ? good : kept; }
};

}  // namespace kernels
}  // namespace ab
