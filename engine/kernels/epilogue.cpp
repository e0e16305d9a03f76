// SPDX-License-Identifier: MIT
#include "engine/kernels/epilogue.h"

#include "engine/kernels/activation.h"
#include "engine/kernels/activation_functors.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/epilogue_functors.h"

namespace ab {

void apply_epilogue(const Tensor& y, const Epilogue& epilogue) {
  epilogue.check(y);
  if (epilogue.is_identity() || y.numel() == 0) return;
  if (epilogue.grad.defined()) return activation_backward(epilogue.grad, y, y);
  const Tensor &bias = epilogue.bias, &addend = epilogue.addend, z = epilogue.before_activation(y);
  if (!bias.defined() && addend.defined()) return add_in_place(y, addend.view(y.shape()));
  if (!bias.defined()) return activation_forward(epilogue.activation, z, y);
  const std::int64_t columns = y.dim(-1), rows = y.numel() / columns;
  AB_ASSERT(bias.numel() == columns && bias.dtype() == y.dtype() && bias.device() == y.device());
  dispatch_float(y.dtype(), "bias and activation", [&]<class T>() {
    if (addend.defined())
      return for_each_row(y.device(), rows, columns,
                          kernels::BiasAndAddend<T>{y.data<T>(), bias.data<T>(), addend.data<T>(), columns});
    kernels::dispatch_activation<compute_t<T>>(epilogue.activation, [&]<class F>(F) {
      for_each_row(y.device(), rows, columns,
                   kernels::BiasAndActivation<T, F>{z.data<T>(), y.data<T>(), bias.data<T>(), columns});
    });
  });
}

}  // namespace ab
