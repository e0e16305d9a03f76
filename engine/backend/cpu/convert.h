#pragma once
// SPDX-License-Identifier: MIT
//
// bfloat16 is a storage type here: operations convert to float32, compute, and round back.

#include "engine/core/tensor.h"

namespace ab::cpu {

/// A float32 copy of a bfloat16 tensor; undefined stays undefined.
Tensor to_float32(const Tensor& x);
/// Rounds float32 `from` to nearest even into bfloat16 `to` of the same size.
void round_to_bfloat16(const Tensor& from, const Tensor& to);

}  // namespace ab::cpu
