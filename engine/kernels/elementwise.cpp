// SPDX-License-Identifier: MIT
#include "engine/kernels/elementwise.h"

#include "engine/kernels/elementwise_functors.h"
#include "engine/kernels/map.h"
#include "engine/kernels/random.h"

namespace ab {
namespace {

void check_alike(std::string_view operation, const Tensor& a, const Tensor& b) {
  AB_CHECK(a.numel() == b.numel() && a.dtype() == b.dtype() && a.device() == b.device(),
           "{}: needs two tensors of one size, type and device, got {} {} and {} {}", operation, name_of(a.dtype()),
           a.shape().str(), name_of(b.dtype()), b.shape().str());
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  check_alike("add", a, b);
  Tensor y(a.shape(), a.dtype(), a.device());
  dispatch_float(a.dtype(), "add", [&]<class T>() {
    map(a.device(), a.numel(), y.data<T>(), kernels::Add<compute_t<T>>{}, a.data<T>(), b.data<T>());
  });
  return y;
}

void add_in_place(const Tensor& to, const Tensor& from) { axpy(1.0, from, to); }

void axpy(double alpha, const Tensor& x, const Tensor& y) {
  check_alike("axpy", x, y);
  dispatch_float(x.dtype(), "axpy", [&]<class T>() {
    const kernels::Axpy<compute_t<T>> f{static_cast<compute_t<T>>(alpha)};
    map(x.device(), x.numel(), y.data<T>(), f, x.data<T>(), y.data<T>());
  });
}

void scale_in_place(const Tensor& t, double factor) {
  dispatch_float(t.dtype(), "scale_in_place", [&]<class T>() {
    const kernels::Scale<compute_t<T>> f{static_cast<compute_t<T>>(factor)};
    map(t.device(), t.numel(), t.data<T>(), f, t.data<T>());
  });
}

void scale_in_place(const Tensor& t, const Tensor& factor, bool inverse) {
  AB_CHECK(factor.numel() == 1 && factor.device() == t.device(),
           "scale_in_place: the factor {} must be one number on the device of t", factor.shape().str());
  dispatch_float(t.dtype(), "scale_in_place", [&]<class T>() {
    const kernels::ScaleBy<compute_t<T>> f{factor.data<float>(), inverse};
    map(t.device(), t.numel(), t.data<T>(), f, t.data<T>());
  });
}

void sign_in_place(const Tensor& t) {
  map(t.device(), t.numel(), t.data<float>(), kernels::Sign<float>{}, t.data<float>());
}

Tensor squared(const Tensor& t) {
  Tensor y(t.shape(), t.dtype(), t.device());
  map(t.device(), t.numel(), y.data<float>(), kernels::Square<float>{}, t.data<float>());
  return y;
}

void fill(const Tensor& t, double value) {
  dispatch_float(t.dtype(), "fill", [&]<class T>() {
    map(t.device(), t.numel(), t.data<T>(), kernels::Fill<compute_t<T>>{static_cast<compute_t<T>>(value)});
  });
}

void fill_uniform(const Tensor& t, double low, double high, Philox random) {
  AB_CHECK(low <= high, "fill_uniform: the range [{}, {}) is empty", low, high);
  const kernels::Uniform f{static_cast<float>(low), static_cast<float>(high - low), random};
  dispatch_float(t.dtype(), "fill_uniform", [&]<class T>() { map(t.device(), t.numel(), t.data<T>(), f); });
}

void fill_normal(const Tensor& t, double mean, double deviation, Philox random) {
  AB_CHECK(deviation >= 0, "fill_normal: the standard deviation {} is negative", deviation);
  const kernels::Normal f{static_cast<float>(mean), static_cast<float>(deviation), random};
  dispatch_float(t.dtype(), "fill_normal", [&]<class T>() { map(t.device(), t.numel(), t.data<T>(), f); });
}

Tensor cast(const Tensor& t, DType dtype) {
  if (t.dtype() == dtype) return t;
  Tensor y(t.shape(), dtype, t.device());
  cast_into(y, t);
  return y;
}

void cast_into(const Tensor& y, const Tensor& t) {
  AB_CHECK(y.numel() == t.numel() && y.device() == t.device(),
           "cast_into: {} values do not go into {}, or are on different devices", t.numel(), y.numel());
  if (y.raw() == t.raw()) return;
  if (y.dtype() == t.dtype()) return y.copy_from(t);
  dispatch_float(t.dtype(), "cast", [&]<class From>() {
    dispatch_float(y.dtype(), "cast", [&]<class To>() {
      if constexpr (!std::is_same_v<From, To>)
        map(t.device(), t.numel(), y.data<To>(), kernels::Same<compute_t<From>>{}, t.data<From>());
    });
  });
}

Tensor transpose(const Tensor& m) {
  AB_CHECK(m.rank() == 2, "transpose: needs a matrix, got shape {}", m.shape().str());
  const std::int64_t rows = m.dim(0), columns = m.dim(1);
  Tensor y(Shape{columns, rows}, m.dtype(), m.device());
  dispatch_float(m.dtype(), "transpose", [&]<class T>() {
    using Kernel = kernels::Transpose<T>;
    const std::int64_t tile = Kernel::kTile;
    const std::int64_t tiles = ((rows + tile - 1) / tile) * ((columns + tile - 1) / tile);
    for_each_row(m.device(), tiles, tile * tile, Kernel{m.data<T>(), y.data<T>(), rows, columns});
  });
  return y;
}

void scale_columns(const Tensor& t, const Tensor& scale) {
  AB_CHECK(t.rank() == 2 && scale.numel() == t.dim(1), "scale_columns: {} factors for a matrix {}", scale.numel(),
           t.shape().str());
  for_each_index(t.device(), t.numel(), kernels::ScaleLines{t.data<float>(), scale.data<float>(), t.dim(1), false});
}

void scale_rows(const Tensor& t, const Tensor& scale) {
  AB_CHECK(t.rank() == 2 && scale.numel() == t.dim(0), "scale_rows: {} factors for a matrix {}", scale.numel(),
           t.shape().str());
  for_each_index(t.device(), t.numel(), kernels::ScaleLines{t.data<float>(), scale.data<float>(), t.dim(1), true});
}

}  // namespace ab
