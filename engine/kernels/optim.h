#pragma once
// SPDX-License-Identifier: MIT
//
// Optimizer updates of all parameters in one launch, over a table of slices: each team takes one slice, which is a
// whole parameter or a piece of one. Clipping stays on the device as well: the update reads the factor that
// measure_grad_norm() left there.

#include "engine/core/tensor.h"

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

}  // namespace ab
