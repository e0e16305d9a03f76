// SPDX-License-Identifier: MIT
#include "engine/kernels/activation.h"

#include "engine/kernels/map.h"

namespace ab {

Tensor relu_forward(const Tensor& x) {
  const Tensor y(x.shape(), x.dtype(), x.device());
  dispatch_float(x.dtype(), "relu", [&]<class T>() {
    map(x.device(), x.numel(), y.data<T>(), kernels::Relu<compute_t<T>>{}, x.data<T>());
  });
  return y;
}

Tensor relu_backward(const Tensor& dy, const Tensor& y) {
  const Tensor dx(y.shape(), y.dtype(), y.device());
  dispatch_float(y.dtype(), "relu", [&]<class T>() {
    map(y.device(), y.numel(), dx.data<T>(), kernels::ReluBackward<compute_t<T>>{}, dy.data<T>(), y.data<T>());
  });
  return dx;
}

Tensor gelu_forward(const Tensor& x) {
  const Tensor y(x.shape(), x.dtype(), x.device());
  dispatch_float(x.dtype(), "gelu", [&]<class T>() {
    map(x.device(), x.numel(), y.data<T>(), kernels::Gelu<compute_t<T>>{}, x.data<T>());
  });
  return y;
}

Tensor gelu_backward(const Tensor& dy, const Tensor& x) {
  const Tensor dx(x.shape(), x.dtype(), x.device());
  dispatch_float(x.dtype(), "gelu", [&]<class T>() {
    map(x.device(), x.numel(), dx.data<T>(), kernels::GeluBackward<compute_t<T>>{}, dy.data<T>(), x.data<T>());
  });
  return dx;
}

Tensor apply_dropout(const Tensor& x, float p, const Tensor& seed, std::uint64_t stream) {
  const Tensor y(x.shape(), x.dtype(), x.device());
  dispatch_float(x.dtype(), "dropout", [&]<class T>() {
    map(x.device(), x.numel(), y.data<T>(),
        kernels::Dropout<compute_t<T>>{p, seed.data<std::int64_t>(), stream}, x.data<T>());
  });
  return y;
}

Tensor apply_drop_path(const Tensor& x, float p, const Tensor& seed, std::uint64_t stream) {
  const Tensor y(x.shape(), x.dtype(), x.device());
  const std::int64_t samples = x.dim(0), length = x.numel() / samples;
  dispatch_float(x.dtype(), "drop_path", [&]<class T>() {
    for_each_row(x.device(), samples, length,
                 kernels::DropPath<T>{x.data<T>(), y.data<T>(), length, p, seed.data<std::int64_t>(), stream});
  });
  return y;
}

}  // namespace ab
