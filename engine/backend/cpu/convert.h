#pragma once
// SPDX-License-Identifier: MIT
//
// bfloat16 and float16 are storage types here: operations convert to float32, compute, and round back.

#include "engine/core/tensor.h"

namespace ab::cpu {

/// A float32 copy of a tensor of 16-bit floats; undefined stays undefined.
Tensor to_float32(const Tensor& x);
/// Rounds float32 `from` to nearest even into `to`, of 16-bit floats and the same size.
void round_from_float32(const Tensor& from, const Tensor& to);

}  // namespace ab::cpu
