// SPDX-License-Identifier: MIT
#include "engine/kernels/kernel_rows.h"

#include "engine/backend/backend.h"
#include "engine/device/exec.h"

namespace ab {

Tensor gradient_of_kernel_rows(const Tensor& dy, const Conv2dSpec& spec, std::int64_t apart) {
  const std::int64_t length = spec.out_width() * spec.out_channels;
  const std::int64_t rows = (spec.batch * spec.height + apart - 1) / apart;
  const Tensor dz({rows, spec.out_width(), spec.out_channels * spec.kernel_h}, dy.dtype(), dy.device());
  dispatch_float(dy.dtype(), "gradient_of_kernel_rows", [&]<class T>() {
    for_each_row(dy.device(), rows, length * spec.kernel_h,
                 kernels::GradientOfKernelRows<T>{dy.data<T>(), dz.data<T>(), spec.height, spec.out_height(), length,
                                                  spec.kernel_h, spec.stride.h, spec.padding.h, spec.dilation, apart});
  });
  return dz;
}

}  // namespace ab
