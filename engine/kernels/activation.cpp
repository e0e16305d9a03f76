// SPDX-License-Identifier: MIT
#include "engine/kernels/activation.h"

namespace ab {

Tensor relu_forward(const Tensor& x) {
  const Tensor y(x.shape(), x.dtype(), x.device());
  dispatch_float(x.dtype(), "relu", [&]<class T>() {
    for_each_index(x.device(), x.numel(), kernels::Relu<T>{x.data<T>(), y.data<T>()});
  });
  return y;
}

Tensor relu_backward(const Tensor& dy, const Tensor& y) {
  const Tensor dx(y.shape(), y.dtype(), y.device());
  dispatch_float(y.dtype(), "relu", [&]<class T>() {
    for_each_index(y.device(), y.numel(), kernels::ReluBackward<T>{dy.data<T>(), y.data<T>(), dx.data<T>()});
  });
  return dx;
}

Tensor gelu_forward(const Tensor& x) {
  const Tensor y(x.shape(), x.dtype(), x.device());
  dispatch_float(x.dtype(), "gelu", [&]<class T>() {
    for_each_index(x.device(), x.numel(), kernels::Gelu<T>{x.data<T>(), y.data<T>()});
  });
  return y;
}

Tensor gelu_backward(const Tensor& dy, const Tensor& x) {
  const Tensor dx(x.shape(), x.dtype(), x.device());
  dispatch_float(x.dtype(), "gelu", [&]<class T>() {
    for_each_index(x.device(), x.numel(), kernels::GeluBackward<T>{dy.data<T>(), x.data<T>(), dx.data<T>()});
  });
  return dx;
}

Tensor apply_dropout(const Tensor& x, float p, const Tensor& seed, std::uint64_t stream) {
  const Tensor y(x.shape(), x.dtype(), x.device());
  dispatch_float(x.dtype(), "dropout", [&]<class T>() {
    for_each_index(x.device(), x.numel(),
                   kernels::Dropout<T>{x.data<T>(), y.data<T>(), p, seed.data<std::int64_t>(), stream});
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
