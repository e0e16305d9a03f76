// SPDX-License-Identifier: MIT
#include "engine/kernels/pool.h"

namespace ab {
namespace {

/// Turns the windows that networks have into compile-time ones, for a GPU: f.template operator()<kernel, covers>(), 0 for
/// others.
template <class F> void dispatch_windows(Device device, const PoolSpec& spec, F&& f) {
  const auto both_are = [&](std::int64_t kernel, std::int64_t stride) {
    return spec.rows.kernel == kernel && spec.columns.kernel == kernel && spec.rows.stride == stride &&
           spec.columns.stride == stride;
  };
  if (device.is_like_cpu()) f.template operator()<0, 0>();
  else if (both_are(3, 2)) f.template operator()<3, 2>();
  else if (both_are(2, 2)) f.template operator()<2, 1>();
  else f.template operator()<0, 0>();
}

}  // namespace

MaxPoolResult max_pool_forward(const Tensor& x, const PoolSpec& spec) {
  const MaxPoolResult result{Tensor(spec.out_shape(), x.dtype(), x.device()),
                             Tensor(spec.out_shape(), DType::uint8, x.device())};
  const std::int64_t window = spec.rows.kernel * spec.columns.kernel;
  dispatch_float(x.dtype(), "max_pool2d", [&]<class T>() {
    dispatch_windows(x.device(), spec, [&]<int kKernel, int>() {
      for_each_row(
          x.device(), spec.batch * spec.rows.out, spec.columns.out * spec.channels * window,
          kernels::MaxPool<T, kKernel>{spec, x.data<T>(), result.y.data<T>(), result.winner.data<std::uint8_t>()});
    });
  });
  return result;
}

Tensor max_pool_backward(const Tensor& dy, const Tensor& winner, const PoolSpec& spec) {
  const Tensor dx(spec.in_shape(), dy.dtype(), dy.device());
  dispatch_float(dy.dtype(), "max_pool2d", [&]<class T>() {
    dispatch_windows(dy.device(), spec, [&]<int, int kCovers>() {
      for_each_row(dy.device(), spec.batch * spec.rows.in, spec.columns.in * spec.channels,
                   kernels::MaxPoolBackward<T, kCovers>{spec, dy.data<T>(), winner.data<std::uint8_t>(), dx.data<T>()});
    });
  });
  return dx;
}

Tensor avg_pool_forward(const Tensor& x, const PoolSpec& spec) {
  const Tensor y(spec.out_shape(), x.dtype(), x.device());
  const std::int64_t window = spec.rows.weight(0) * spec.columns.weight(0);
  dispatch_float(x.dtype(), "avg_pool2d", [&]<class T>() {
    for_each_row(x.device(), spec.batch * spec.rows.out, spec.columns.out * spec.channels * window,
                 kernels::AvgPool<T>{spec, x.data<T>(), y.data<T>()});
  });
  return y;
}

Tensor avg_pool_backward(const Tensor& dy, const PoolSpec& spec) {
  const Tensor dx(spec.in_shape(), dy.dtype(), dy.device());
  dispatch_float(dy.dtype(), "avg_pool2d", [&]<class T>() {
    for_each_row(dy.device(), spec.batch * spec.rows.in, spec.columns.in * spec.channels,
                 kernels::AvgPoolBackward<T>{spec, dy.data<T>(), dx.data<T>()});
  });
  return dx;
}

}  // namespace ab
