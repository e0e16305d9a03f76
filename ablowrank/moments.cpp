// SPDX-License-Identifier: MIT
#include "ablowrank/moments.h"

#include "engine/backend/symmetric_eigen.h"
#include "engine/kernels/elementwise.h"

namespace ab {
namespace {

/// The projection of a moment of W [O, K] on the side of the trained factor.
Tensor project(const Tensor& moment, const Tensor& outer, const Tensor& inner, bool train_outer) {
  return train_outer ? product(moment, inner, false, true) : product(outer, moment, true, false);
}

/// X of the least squares problem B·X = C, from BᵀB and BᵀC, by the pseudo-inverse.   float64 on the host
Tensor least_squares(const Tensor& gram, const Tensor& right_side) {
  const SymmetricEigen eigen = symmetric_eigen(gram);
  const Tensor along = product(eigen.vectors, right_side);
  for (std::int64_t i = 0; i < along.dim(0); ++i) {
    const double value = eigen.values[static_cast<std::size_t>(i)];
    scale_in_place(along.slice(i, i + 1), value > 1e-12 * eigen.values.front() ? 1 / value : 0);
  }
  return product(eigen.vectors, along, true, false);
}

}  // namespace

void carry_moments_to_factors(Weight& weight, MomentCarry carry, Optimizer& optimizer) {
  if (carry == MomentCarry::truncate) {
    optimizer.resize(weight.a());
    optimizer.resize(weight.b());
    return;
  }
  optimizer.reset(weight.a());
  optimizer.reset(weight.b());
  if (carry == MomentCarry::project) {
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

void carry_moments_to_later_factors(const EarlierFactors& earlier, Weight& weight, MomentCarry carry,
                                    Optimizer& optimizer) {
  if (carry != MomentCarry::project) return;
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

bool moments_can_join(const AbOptions& options, int moments_per_parameter) {
  return options.moments == MomentCarry::project && options.sync == SyncMode::tangent && moments_per_parameter == 1;
}

bool moments_can_join(const AbOptions& options, const SplitWeight& split, Optimizer& optimizer) {
  Param& trained = split.weight->outer().trainable() ? split.weight->outer() : split.weight->inner();
  const ParamState& state = optimizer.state(trained);
  return moments_can_join(options, state.first_moment.defined() + state.second_moment.defined());
}

Join join_moments(const SplitWeight& split, const AbOptions& options, const Trainers& trainers, Optimizer& optimizer,
                  WeightedSum& sum) {
  Weight& weight = *split.weight;
  const bool train_outer = weight.outer().trainable();
  const auto moment = [&](Param& factor) {
    const Tensor& m = optimizer.state(factor).first_moment;
    return m.view({m.dim(0), -1});
  };
  // In the orthonormal gauge the frozen side of a lifted moment is the frozen factor itself.
  return Join(split, train_outer ? moment(weight.outer()) : split.origin.outer,
              train_outer ? split.origin.inner : moment(weight.inner()), options.sync, trainers, sum);
}

void carry_moments_to_dense(Weight& weight, MomentCarry carry, const Tensor& dense_moment, Optimizer& optimizer) {
  if (carry == MomentCarry::truncate) return;
  optimizer.reset(weight.a());
  optimizer.reset(weight.b());
  optimizer.reset(weight.dense());
  if (dense_moment.defined()) optimizer.state(weight.dense()).first_moment = dense_moment.view(weight.shape());
}

}  // namespace ab
