#pragma once
// SPDX-License-Identifier: MIT
//
// Products with a diagonal matrix, in place.

#include "engine/core/tensor.h"

namespace ab {

/// t ← t · diag(scale)      t: [rows, columns] float32, scale: [columns] float32
void scale_columns(const Tensor& t, const Tensor& scale);
/// t ← diag(scale) · t      t: [rows, columns] float32, scale: [rows] float32
void scale_rows(const Tensor& t, const Tensor& scale);

}  // namespace ab
