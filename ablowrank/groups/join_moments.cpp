// SPDX-License-Identifier: MIT
#include "ablowrank/groups/join_moments.h"

#include "ablowrank/moments.h"

namespace ab {

void carry_moments_to_factors(Weight& weight, MomentCarry carry, Optimizer& optimizer) {
  if (carry == MomentCarry::project) return project_moments(weight, optimizer);
  optimizer.resize(weight.a());
  optimizer.resize(weight.b());
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
