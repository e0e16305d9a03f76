#pragma once
// SPDX-License-Identifier: MIT
//
// The weight of a linear or convolution layer: one dense tensor, or the two factors of AB-training
// (arXiv 2405.01067). The elements of a weight [O, ...], in their order, are a matrix W2 of rows × columns (ConvFactors):
//   O × K with K = the product of the rest; of a convolution [O, kh, kw, I] also (O·kh) × (kw·I)
// The decomposition works on the tall orientation of that view, m × n with m >= n:
//   rows >= columns: W2 = A·B    A: [rows, r]      B: [r, columns]
//   rows <  columns: W2ᵀ = A·B   A: [columns, r]   B: [r, rows], so W2 = Bᵀ·Aᵀ
// In both orientations W2 = (rows × r) · (r × columns): r thin filters over the input, then a map to the output.
// The factors are stored in that form, ready to run: `outer()` [rows, r] and `inner()` [r, ...].
// On request the rest that the cut left over stays in the model as a frozen dense tensor: W2 = outer·inner + rest.

#include <algorithm>

#include "engine/autograd/var.h"
#include "engine/backend/backend.h"
#include "layers/output_moments.h"

namespace ab {

/// How a factored weight is applied: as two thin operations, by forming W = A·B in every step, or by
/// whichever of the two costs less (factors_are_cheaper()).
enum class Execution { automatic, factors, form_w };

/// How the factors of a convolution [O, kh, kw, I] share its kernel.
enum class ConvFactors {
  channel,  ///< kh×kw to r channels, then 1×1: W2 is O × (kh·kw·I)   (Denton et al. 2014, arXiv 1404.0736)
  spatial,  ///< 1×kw to r channels, then kh×1: W2 is (O·kh) × (kw·I)   (Jaderberg et al. 2014, arXiv 1405.3866)
};

class Weight {
 public:
  /// Which tensors exist and are trained. While factored, the dense parameter and its gradient are freed (a
  /// rest, if kept, is a frozen tensor of the same size), and a frozen factor has no gradient.
  enum class Mode { full, train_a, train_b, train_both };

  /// `value`: [O, ...]. Only `role` weight is ever factorised. `spatial`: whether it can have spatial factors, that is, is the
  /// kernel of a convolution that moves over its input.
  Weight(const std::string& name, Tensor value, ParamRole role, bool spatial = false);
  Weight(const Weight&) = delete;
  Weight& operator=(const Weight&) = delete;

  const std::string& name() const { return dense_.name; }
  ParamRole role() const { return dense_.role; }
  const Shape& shape() const { return shape_; }
  /// O
  std::int64_t outputs() const { return shape_[0]; }
  /// Rows of W2. They belong to an output, and with spatial factors to a row of the kernel: row o·kh + i.
  std::int64_t rows() const { return outputs() * kernel_rows_; }
  std::int64_t columns() const { return shape_.numel() / rows(); }
  bool transposed() const { return rows() < columns(); }
  std::int64_t m() const { return std::max(rows(), columns()); }
  std::int64_t n() const { return std::min(rows(), columns()); }

  /// Which factors a dense weight is to have, channel factors at first; one that cannot have spatial ones keeps them.
  void set_conv_factors(ConvFactors factors);
  ConvFactors conv_factors() const { return kernel_rows_ == 1 ? ConvFactors::channel : ConvFactors::spatial; }

  Mode mode() const { return mode_; }
  bool factored() const { return mode_ != Mode::full; }
  /// The inner dimension of the factors; n while dense.
  std::int64_t r() const { return factored() ? outer().value.shape()[1] : n(); }

  Param& dense() { return dense_; }
  Param& a() { return a_; }
  Param& b() { return b_; }
  const Param& a() const { return a_; }
  const Param& b() const { return b_; }
  /// [rows, r] and [r, ...]: A and B, or B and A, by orientation. Spatial factors: [O·kh, r] and [r, 1, kw, I]
  Param& outer() { return transposed() ? b_ : a_; }
  Param& inner() { return transposed() ? a_ : b_; }
  const Param& outer() const { return transposed() ? b_ : a_; }
  const Param& inner() const { return transposed() ? a_ : b_; }
  /// Whether `mode`, which trains one factor, trains the outer one.
  bool trains_outer(Mode mode) const { return (mode == Mode::train_a) != transposed(); }

  /// W2 while dense, [rows, columns].
  Tensor matrix() const { return dense_.value.value().view({rows(), columns()}); }
  /// The factors as matrices, [rows, r] and [r, columns].
  Tensor outer_matrix() const { return outer().value.value(); }
  Tensor inner_matrix() const { return inner().value.value().view({r(), columns()}); }
  /// The frozen part of a factored weight, of shape(); undefined when there is none.
  const Tensor& rest() const { return rest_; }

  /// Replaces the dense tensor by factors in their stored form, outer [rows, r] and inner [r, columns] or [r, ...], and
  /// a rest of as many elements as W, which may be undefined. Throws Error(config) unless they are of conv_factors().
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
  Var observe(const Var& y, const OutputMoments::Parts& parts) const { return observer_->observe(y, parts); }
  const OutputMoments* observer() const { return observer_; }

  /// The parameters that exist now: the dense one, or A and B.
  void list(std::vector<Param*>& params);

 private:
  Shape shape_;
  bool has_spatial_factors_;
  std::int64_t kernel_rows_ = 1;  ///< that W2 has rows for: 1, or kh
  Mode mode_ = Mode::full;
  Execution execution_ = Execution::automatic;
  Param dense_, a_, b_;
  Tensor rest_;
  OutputMoments* observer_ = nullptr;
};

// Whether two thin operations are cheaper than forming W = A·B and running the dense one.

/// How often each factor is applied: the inner one to every row of an image where it is 1×k and the outer one is k×1.
struct FactorPositions {
  std::int64_t inner = 0;
  std::int64_t outer = 0;  ///< as often as W
};

/// Multiply-adds of one training step of a factored layer, the input gradient included; K and O: columns and rows of W2
///   two thin ops   inner · 2·r·K + outer · 2·r·O, plus inner · r·K and outer · r·O for the factors in training
///   form W         outer · 3·O·K, plus O·r·K to form W and as much for the gradient of each trained factor
/// `dense_advantage` divides the dense work: on a CPU, Winograd runs a 3×3 convolution at about half its nominal
/// cost, which thin filters of few channels cannot use.
bool factors_are_cheaper(const Weight& weight, const FactorPositions& positions, double dense_advantage);

/// Whether a linear layer over `rows` inputs runs its factors: never when dense or with a rest, which needs W;
/// otherwise as weight.execution() says.
bool run_factors(const Weight& weight, std::int64_t rows);
/// The same for a convolution of activations of that type.
bool run_factors(const Weight& weight, const Conv2dSpec& spec, DType dtype);

}  // namespace ab
