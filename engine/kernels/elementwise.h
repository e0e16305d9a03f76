#pragma once
// SPDX-License-Identifier: MIT
//
// Arithmetic on whole tensors, element by element. These functions work on plain tensors, outside any
// record; the differentiable operations are in engine/ops. All tensors of a call live on one device.

#include "engine/core/tensor.h"
#include "engine/kernels/lanes.h"

namespace ab {

/// y = a + b, fresh.   a, b: equal shape and type
Tensor add(const Tensor& a, const Tensor& b);
/// to += from
void add_in_place(const Tensor& to, const Tensor& from);
/// y += alpha x
void axpy(double alpha, const Tensor& x, const Tensor& y);
/// t *= factor
void scale_in_place(const Tensor& t, double factor);
/// The same with a factor, [1] float32, that lies on the device of t.
void scale_in_place(const Tensor& t, const Tensor& factor);
/// y_i = t_i², fresh.
Tensor squared(const Tensor& t);
/// Every element becomes `value`.
void fill(const Tensor& t, double value);
/// The same values in another floating-point type; `t` itself when it has that type already.
Tensor cast(const Tensor& t, DType dtype);
/// y = t in the floating-point type of y.   t, y: equal size
void cast_into(const Tensor& y, const Tensor& t);
/// y[j, i] = m[i, j], fresh.   m: [rows, columns]
Tensor transpose(const Tensor& m);

namespace kernels {

template <class C> struct Add {
  AB_HD C operator()(C a, C b) const { return a + b; }
};

template <class C> struct Axpy {
  C alpha;
  AB_HD C operator()(C x, C y) const { return alpha * x + y; }
};

template <class C> struct Scale {
  C factor;
  AB_HD C operator()(C t) const { return factor * t; }
};

template <class C> struct ScaleBy {
  const float* factor;
  AB_HD C operator()(C t) const { return static_cast<C>(*factor) * t; }
};

template <class C> struct Square {
  AB_HD C operator()(C x) const { return x * x; }
};

template <class C> struct Fill {
  C value;
  AB_HD C operator()(std::int64_t) const { return value; }
};

template <class C> struct Same {
  AB_HD C operator()(C x) const { return x; }
};

/// One square tile per team, so that both sides stay within a few cache lines.
template <class T> struct Transpose {
  static constexpr std::int64_t kTile = 32;
  const T* x;
  T* y;
  std::int64_t rows, columns;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t tile) const {
    const std::int64_t tiles_across = (columns + kTile - 1) / kTile;
    const std::int64_t top = tile / tiles_across * kTile, left = tile % tiles_across * kTile;
    for (std::int64_t e = team.lane(); e < kTile * kTile; e += team.size()) {
      const std::int64_t i = top + e % kTile, j = left + e / kTile;
      if (i < rows && j < columns) y[j * rows + i] = x[i * columns + j];
    }
  }
};

}  // namespace kernels
}  // namespace ab
