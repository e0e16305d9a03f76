#pragma once
// SPDX-License-Identifier: MIT
//
// Reductions of plain tensors. The work is cut into chunks whose size depends on the shape alone, so that
// the result does not depend on how many threads ran.

#include "engine/core/tensor.h"

namespace ab {

/// Σ t_i², in double. Waits for the device.
double sum_of_squares(const Tensor& t);
/// Whether no element is NaN or infinite. Waits for the device.
bool all_finite(const Tensor& t);
/// y[c] = Σ_i m[i, c]   m: [..., C] -> [C], accumulated in float (double for float64)
Tensor column_sums(const Tensor& m);
/// The same into a tensor that is there.
void column_sums(const Tensor& m, const Tensor& y);

}  // namespace ab
