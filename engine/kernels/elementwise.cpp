// SPDX-License-Identifier: MIT
#include "engine/kernels/elementwise.h"

namespace ab {
namespace {

void check_alike(std::string_view operation, const Tensor& a, const Tensor& b) {
  AB_CHECK(a.numel() == b.numel() && a.dtype() == b.dtype() && a.device() == b.device(),
           "{}: needs two tensors of one size, type and device, got {} {} and {} {}", operation,
           name_of(a.dtype()), a.shape().str(), name_of(b.dtype()), b.shape().str());
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b) {
  check_alike("add", a, b);
  Tensor y(a.shape(), a.dtype(), a.device());
  dispatch_float(a.dtype(), "add", [&]<class T>() {
    for_each_index(a.device(), a.numel(), kernels::Add<T>{a.data<T>(), b.data<T>(), y.data<T>()});
  });
  return y;
}

void add_in_place(const Tensor& to, const Tensor& from) { axpy(1.0, from, to); }

void axpy(double alpha, const Tensor& x, const Tensor& y) {
  check_alike("axpy", x, y);
  dispatch_float(x.dtype(), "axpy", [&]<class T>() {
    for_each_index(x.device(), x.numel(),
                   kernels::Axpy<T>{static_cast<compute_t<T>>(alpha), x.data<T>(), y.data<T>()});
  });
}

void scale_in_place(const Tensor& t, double factor) {
  dispatch_float(t.dtype(), "scale_in_place", [&]<class T>() {
    for_each_index(t.device(), t.numel(), kernels::Scale<T>{static_cast<compute_t<T>>(factor), t.data<T>()});
  });
}

void scale_in_place(const Tensor& t, const Tensor& factor) {
  AB_CHECK(factor.numel() == 1 && factor.device() == t.device(),
           "scale_in_place: the factor {} must be one number on the device of t", factor.shape().str());
  dispatch_float(t.dtype(), "scale_in_place", [&]<class T>() {
    for_each_index(t.device(), t.numel(), kernels::ScaleBy<T>{factor.data<float>(), t.data<T>()});
  });
}

Tensor squared(const Tensor& t) {
  Tensor y(t.shape(), t.dtype(), t.device());
  dispatch_float(t.dtype(), "squared", [&]<class T>() {
    for_each_index(t.device(), t.numel(), kernels::Square<T>{t.data<T>(), y.data<T>()});
  });
  return y;
}

void fill(const Tensor& t, double value) {
  dispatch_float(t.dtype(), "fill", [&]<class T>() {
    for_each_index(t.device(), t.numel(),
                   kernels::Fill<T>{static_cast<T>(static_cast<compute_t<T>>(value)), t.data<T>()});
  });
}

Tensor cast(const Tensor& t, DType dtype) {
  if (t.dtype() == dtype) return t;
  Tensor y(t.shape(), dtype, t.device());
  dispatch_float(t.dtype(), "cast", [&]<class From>() {
    dispatch_float(dtype, "cast", [&]<class To>() {
      for_each_index(t.device(), t.numel(), kernels::Cast<From, To>{t.data<From>(), y.data<To>()});
    });
  });
  return y;
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

}  // namespace ab
