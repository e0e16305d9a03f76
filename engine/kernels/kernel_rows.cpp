// SPDX-License-Identifier: MIT
#include "engine/kernels/kernel_rows.h"

#include "engine/device/exec.h"

namespace ab {

Tensor gradient_of_kernel_rows(const Tensor& dy, const KernelRows& r, std::int64_t apart) {
  const std::int64_t length = dy.dim(2) * dy.dim(3);
  const std::int64_t rows = (dy.dim(0) * r.height + apart - 1) / apart;
  const Tensor dz({rows, dy.dim(2), dy.dim(3) * r.kernel}, dy.dtype(), dy.device());
  dispatch_float(dy.dtype(), "gradient_of_kernel_rows", [&]<class T>() {
    for_each_row(dy.device(), rows, length * r.kernel,
                 kernels::GradientOfKernelRows<T>{dy.data<T>(), dz.data<T>(), r.height, dy.dim(1), length, r.kernel,
                                                  r.stride, r.padding, r.dilation, apart});
  });
  return dz;
}

}  // namespace ab
