// SPDX-License-Identifier: MIT
#include "engine/kernels/softmax.h"

namespace ab {

void softmax_in_place(const Tensor& x) {
  const std::int64_t columns = x.dim(-1), rows = x.numel() / columns;
  dispatch_float(x.dtype(), "softmax", [&]<class T>() {
    for_each_row(x.device(), rows, 8 * columns, kernels::Softmax<T>{x.data<T>(), columns});
  });
}

void softmax_backward_in_place(const Tensor& dy, const Tensor& y) {
  const std::int64_t columns = y.dim(-1), rows = y.numel() / columns;
  dispatch_float(y.dtype(), "softmax", [&]<class T>() {
    for_each_row(y.device(), rows, columns, kernels::SoftmaxBackward<T>{dy.data<T>(), y.data<T>(), columns});
  });
}

}  // namespace ab
