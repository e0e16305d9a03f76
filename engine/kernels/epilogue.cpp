// SPDX-License-Identifier: MIT
#include "engine/kernels/epilogue.h"

namespace ab {

void apply_epilogue(const Tensor& y, const Epilogue& epilogue) {
  const Tensor& bias = epilogue.bias;
  if (epilogue.is_identity() || y.numel() == 0) return;
  const std::int64_t columns = y.dim(-1), rows = y.numel() / columns;
  AB_ASSERT(!bias.defined() || (bias.numel() == columns && bias.dtype() == y.dtype() && bias.device() == y.device()));
  dispatch_float(y.dtype(), "bias and activation", [&]<class T>() {
    const auto run = [&](auto kernel) { for_each_row(y.device(), rows, columns, kernel); };
    T* to = y.data<T>();
    const T* addend = bias.defined() ? bias.data<T>() : nullptr;
    if (!addend)
      run(kernels::BiasAndActivation<T, false, true>{to, addend, columns});
    else if (epilogue.activation == Activation::relu)
      run(kernels::BiasAndActivation<T, true, true>{to, addend, columns});
    else
      run(kernels::BiasAndActivation<T, true, false>{to, addend, columns});
  });
}

}  // namespace ab
