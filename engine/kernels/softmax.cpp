// SPDX-License-Identifier: MIT
#include "engine/kernels/softmax.h"

namespace ab {

void softmax_in_place(const Tensor& x, std::int64_t columns) {
  const std::int64_t stored = x.dim(-1), rows = x.numel() / stored;
  dispatch_float(x.dtype(), "softmax", [&]<class T>() {
    for_each_row(x.device(), rows, columns, kernels::Softmax<T>{x.data<T>(), stored, columns});
  });
}

void softmax_backward_in_place(const Tensor& dy, const Tensor& y, std::int64_t columns) {
  const std::int64_t stored = y.dim(-1), rows = y.numel() / stored;
  dispatch_float(y.dtype(), "softmax", [&]<class T>() {
    for_each_row(y.device(), rows, columns, kernels::SoftmaxBackward<T>{dy.data<T>(), y.data<T>(), stored, columns});
  });
}

}  // namespace ab
