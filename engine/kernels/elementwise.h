#pragma once
// SPDX-License-Identifier: MIT
//
// Arithmetic on whole tensors, element by element. These functions work on plain tensors, outside any
// record; the differentiable operations are in engine/ops. All tensors of a call live on one device.

#include "engine/core/tensor.h"

namespace ab {

/// y = a + b, fresh.   a, b: equal shape and type
Tensor add(const Tensor& a, const Tensor& b);
/// to += from
void add_in_place(const Tensor& to, const Tensor& from);
/// y += alpha x
void axpy(double alpha, const Tensor& x, const Tensor& y);
/// t *= factor
void scale_in_place(const Tensor& t, double factor);
/// The same with a factor, [1] float32, that lies on the device of t; `inverse`: t /= factor.
void scale_in_place(const Tensor& t, const Tensor& factor, bool inverse = false);
/// t_i becomes −1, 0 or 1, as its sign is; NaN where it is not finite.   t: float32
void sign_in_place(const Tensor& t);
/// y_i = t_i², fresh.   t: float32
Tensor squared(const Tensor& t);
/// Every element becomes `value`.
void fill(const Tensor& t, double value);
/// The same values in a different floating-point type; `t` itself when it has that type already.
Tensor cast(const Tensor& t, DType dtype);
/// y = t in the floating-point type of y.   t, y: equal size, maybe the same tensor
void cast_into(const Tensor& y, const Tensor& t);
/// y[j, i] = m[i, j], fresh.   m: [rows, columns]
Tensor transpose(const Tensor& m);
/// t ← t · diag(scale)      t: [rows, columns] float32, scale: [columns] float32
void scale_columns(const Tensor& t, const Tensor& scale);
/// t ← diag(scale) · t      t: [rows, columns] float32, scale: [rows] float32
void scale_rows(const Tensor& t, const Tensor& scale);

}  // namespace ab
