#pragma once
// SPDX-License-Identifier: MIT
//
// Optimizer state of a weight across splits and synchronisations of AB-training (MomentCarry).

#include "ablowrank/groups/join.h"
#include "ablowrank/groups/options.h"
#include "engine/optim/optimizer.h"

namespace ab {

/// After a split: gives the trained factor its state and drops that of the frozen one.
void carry_moments_to_factors(Weight& weight, MomentCarry carry, Optimizer& optimizer);

/// The join of the first moments, for MomentCarry::project with SyncMode::tangent and an optimizer whose
/// only state is a first moment; the dense moment is join.dense(sum) once the sum has run.
bool moments_can_join(const AbOptions& options, int moments_per_parameter);
bool moments_can_join(const AbOptions& options, const SplitWeight& split, Optimizer& optimizer);
Join join_moments(const SplitWeight& split, const AbOptions& options, const Trainers& trainers, Optimizer& optimizer,
                  WeightedSum& sum);

/// After a sync: gives W its state (`dense_moment` may be undefined) and drops that of the factors.
void carry_moments_to_dense(Weight& weight, MomentCarry carry, const Tensor& dense_moment, Optimizer& optimizer);

}  // namespace ab
