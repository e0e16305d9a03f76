#pragma once
// SPDX-License-Identifier: MIT
//
// An orthonormal basis of the columns of a matrix, in float64 on the host, by Householder's QR. Implemented by
// engine/backend/cpu.

#include "engine/core/tensor.h"

namespace ab {

/// The j-th vector points along column j as far as that is independent of the columns before it; where it is not, others
/// complete the basis.   y: [m, n] float64 on the host, m >= n -> [m, n]
Tensor orthonormal_columns(const Tensor& y);

}  // namespace ab
