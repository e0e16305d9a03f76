// SPDX-License-Identifier: MIT
#include "ablowrank/moments.h"

#include "ablowrank/factorise.h"
#include "engine/backend/factorisations.h"
#include "engine/kernels/elementwise.h"

namespace ab {
namespace {

/// The projection of a moment of W [O, K] on the side of the trained factor.
Tensor project(const Tensor& moment, const Tensor& outer, const Tensor& inner, bool train_outer) {
  return train_outer ? product(moment, inner, false, true) : product(outer, moment, true, false);
}

/// X of the least squares problem B·X = C, from BᵀB and BᵀC, by the pseudo-inverse.   float64 on the host
Tensor least_squares(const Tensor& gram, const Tensor& right_side) {
  if (gram.device().kind == DeviceKind::shapes) return product(gram, right_side);  // of the same shape
  const SymmetricEigen eigen = symmetric_eigen(gram);
  const Tensor along = product(eigen.vectors, right_side);
  for (std::int64_t i = 0; i < along.dim(0); ++i) {
    const double value = eigen.values[static_cast<std::size_t>(i)];
    scale_in_place(along.slice(i, i + 1), value > 1e-12 * eigen.values.front() ? 1 / value : 0);
  }
  return product(eigen.vectors, along, true, false);
}

}  // namespace

void project_moments(Weight& weight, Optimizer& optimizer) {
  optimizer.reset(weight.a());
  optimizer.reset(weight.b());
  const ParamState dense = optimizer.state(weight.dense());
  const Tensor outer = weight.outer_matrix(), inner = weight.inner_matrix();
  for (Param* factor : {&weight.outer(), &weight.inner()}) {
    if (!factor->trainable()) continue;
    const auto projected = [&](const Tensor& moment, const Tensor& o, const Tensor& i) {
      return project(moment.view({weight.rows(), weight.columns()}), o, i, factor == &weight.outer())
          .view(factor->value.shape());
    };
    ParamState& state = optimizer.state(*factor);
    state.updates = dense.updates;
    if (dense.first_moment.defined()) state.first_moment = projected(dense.first_moment, outer, inner);
    if (dense.second_moment.defined())
      state.second_moment = projected(dense.second_moment, squared(outer), squared(inner));
  }
  optimizer.reset(weight.dense());
}

EarlierFactors take_factors(Weight& weight, Optimizer& optimizer) {
  EarlierFactors earlier{weight.outer_matrix(), weight.inner_matrix(), optimizer.state(weight.outer()),
                         optimizer.state(weight.inner())};
  optimizer.reset(weight.outer());
  optimizer.reset(weight.inner());
  return earlier;
}

void project_moments(const EarlierFactors& earlier, Weight& weight, Optimizer& optimizer) {
  const Tensor outer = in_float64(earlier.outer), inner = in_float64(earlier.inner);
  const auto onto_device = [&](const Tensor& t) { return cast(t, DType::float32).to(earlier.outer.device()); };
  const Tensor x = onto_device(least_squares(product(outer, outer, true, false),
                                             product(outer, in_float64(weight.outer_matrix()), true, false)));
  const Tensor y_transposed = onto_device(least_squares(
      product(inner, inner, false, true), product(inner, in_float64(weight.inner_matrix()), false, true)));
  const auto of_outer = [&](const Tensor& moment, const Tensor& by) {
    return moment.defined() ? product(moment, by) : moment;
  };
  const auto of_inner = [&](const Tensor& moment, const Tensor& by) {
    return moment.defined()
               ? product(by, moment.view({moment.dim(0), -1}), true, false).view(weight.inner().value.shape())
               : moment;
  };
  optimizer.state(weight.outer()) = {of_outer(earlier.of_outer.first_moment, y_transposed),
                                     of_outer(earlier.of_outer.second_moment, squared(y_transposed)),
                                     earlier.of_outer.updates};
  optimizer.state(weight.inner()) = {of_inner(earlier.of_inner.first_moment, x),
                                     of_inner(earlier.of_inner.second_moment, squared(x)), earlier.of_inner.updates};
}

}  // namespace ab
