#pragma once
// SPDX-License-Identifier: MIT
//
// Operations on each element by itself, and changes of shape, which share elements and do not copy them.

#include "engine/autograd/var.h"

namespace ab {

/// y = act(x); x itself without an activation.
Var activate(const Var& x, Activation activation);
/// y = max(x, 0)
Var relu(const Var& x);
/// y = x Φ(x), the exact form (erf)
Var gelu(const Var& x);
/// y = x · mask / (1 − p), mask_i = [uniform_i >= p] with the numbers of Philox{seed, stream}; p in [0, 1).
/// `seed`: [1] int64 on the device of x, read there whenever the mask is drawn, so that a captured step can be given
/// a new one. The mask is drawn again in the backward pass instead of being kept.
Var dropout(const Var& x, float p, const Tensor& seed, std::uint64_t stream);
/// The same with one number for each sample: y[n] = x[n] · mask_n / (1 − p).   x: [N, ...]
Var drop_path(const Var& x, float p, const Tensor& seed, std::uint64_t stream);
/// y = a + b, equal shapes
Var add(const Var& a, const Var& b);
/// y = factor · x
Var scale(const Var& x, double factor);
/// The same values in a different floating-point type, x itself when it has that one. dx is of x's type.
Var cast(const Var& x, DType dtype);

/// The same elements in a different shape; one dimension may be -1.
Var reshape(const Var& x, const Shape& shape);
/// [N, ...] -> [N, product of the rest]
Var flatten(const Var& x);

}  // namespace ab
