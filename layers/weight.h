#pragma once
// SPDX-License-Identifier: MIT
//
// The weight of a linear or convolution layer: one dense tensor, or the two factors of AB-training
// (arXiv 2405.01067). The 2-D view of a weight [O, ...] is O × K with K = the product of the rest; the
// decomposition works on the tall orientation of that view, m × n with m >= n:
//   O >= K: W2 = A·B    A: [O, r]   B: [r, K]
//   O <  K: W2ᵀ = A·B   A: [K, r]   B: [r, O], so W2 = Bᵀ·Aᵀ
// In both orientations W2 = (O × r) · (r × K): r thin filters over the input, then a 1×1 map to the output.
// The factors are stored in that form, ready to run: `outer()` [O, r] and `inner()` [r, ...].
// On request the rest that the cut left over stays in the model as a frozen dense tensor: W2 = outer·inner + rest.

#include <algorithm>

#include "engine/autograd/param.h"
#include "layers/output_moments.h"

namespace ab {

/// How a factored weight is applied: as two thin operations, by forming W = A·B in every step, or by
/// whichever of the two costs less (execution_cost.h).
enum class Execution { automatic, factors, form_w };

class Weight {
 public:
  /// Which tensors exist and are trained. While factored, the dense parameter and its gradient are freed (a
  /// rest, if kept, is a frozen tensor of the same size), and a frozen factor has no gradient.
  enum class Mode { full, train_a, train_b, train_both };

  /// `value`: [O, ...]. Only `role` weight is ever factorised.
  Weight(const std::string& name, Tensor value, ParamRole role);
  Weight(const Weight&) = delete;
  Weight& operator=(const Weight&) = delete;

  const std::string& name() const { return dense_.name; }
  ParamRole role() const { return dense_.role; }
  const Shape& shape() const { return shape_; }
  std::int64_t out() const { return shape_[0]; }
  std::int64_t in() const { return shape_.numel() / shape_[0]; }
  bool transposed() const { return out() < in(); }
  std::int64_t m() const { return std::max(out(), in()); }
  std::int64_t n() const { return std::min(out(), in()); }

  Mode mode() const { return mode_; }
  bool factored() const { return mode_ != Mode::full; }
  /// The inner dimension of the factors; n while dense.
  std::int64_t r() const { return factored() ? outer().value.shape()[1] : n(); }

  Param& dense() { return dense_; }
  Param& a() { return a_; }
  Param& b() { return b_; }
  const Param& a() const { return a_; }
  const Param& b() const { return b_; }
  /// [O, r] and [r, ...]: A and B, or B and A, by orientation.
  Param& outer() { return transposed() ? b_ : a_; }
  Param& inner() { return transposed() ? a_ : b_; }
  const Param& outer() const { return transposed() ? b_ : a_; }
  const Param& inner() const { return transposed() ? a_ : b_; }
  /// Whether `mode`, which trains one factor, trains the outer one.
  bool trains_outer(Mode mode) const { return (mode == Mode::train_a) != transposed(); }

  /// The factors as matrices, [O, r] and [r, K].
  Tensor outer_matrix() const { return outer().value.value(); }
  Tensor inner_matrix() const { return inner().value.value().view({r(), in()}); }
  /// The frozen part of a factored weight, of shape(); undefined when there is none.
  const Tensor& rest() const { return rest_; }

  /// Replaces the dense tensor by factors in their stored form, outer [O, r] and inner [r, K] or [r, ...], and
  /// a rest of O·K elements, which may be undefined.
  void factorise(Tensor outer, Tensor inner, Mode mode, const Tensor& rest = {});
  /// Replaces the factors by a dense tensor of shape().
  void restore(Tensor dense);

  Execution execution() const { return execution_; }
  void set_execution(Execution execution) { execution_ = execution; }

  /// W as the layer applies it, of shape(): the dense parameter, or outer·inner + rest, recorded for backward().
  /// Cast to `dtype`, the factors before they are multiplied.
  Var formed(DType dtype = DType::float32) const;

  /// Lets `observer` see the outputs of training steps and their gradients; null: nobody. It must outlive its use.
  void set_observer(OutputMoments* observer) { observer_ = observer; }
  /// Whether the layer shall pass what leaves this weight to observe(), before an activation.
  bool observed() const { return observer_ && recording(); }
  Var observe(const Var& y) const { return observer_->observe(y); }
  const OutputMoments* observer() const { return observer_; }

  /// The parameters that exist now: the dense one, or A and B.
  void list(std::vector<Param*>& params);

 private:
  Shape shape_;
  Mode mode_ = Mode::full;
  Execution execution_ = Execution::automatic;
  Param dense_, a_, b_;
  Tensor rest_;
  OutputMoments* observer_ = nullptr;
};

}  // namespace ab
