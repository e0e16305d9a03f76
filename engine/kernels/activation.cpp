// SPDX-License-Identifier: MIT
#include "engine/kernels/activation.h"

#include "engine/kernels/activation_functors.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/map.h"

namespace ab {

Tensor activation_forward(Activation activation, const Tensor& z) {
  const Tensor y(z.shape(), z.dtype(), z.device());
  activation_forward(activation, z, y);
  return y;
}

void activation_forward(Activation activation, const Tensor& z, const Tensor& y) {
  dispatch_float(z.dtype(), "activation", [&]<class T>() {
    kernels::dispatch_activation<compute_t<T>>(
        activation, [&](auto f) { map(z.device(), z.numel(), y.data<T>(), f, z.data<T>()); });
  });
}

Tensor activation_backward(const ActivationGrad& activation, const Tensor& dy) {
  const Tensor dz(activation.saved.shape(), dy.dtype(), dy.device());
  activation_backward(activation, dy, dz);
  return dz;
}

void activation_backward(const ActivationGrad& activation, const Tensor& dy, const Tensor& dz) {
  const Tensor& saved = activation.saved;
  AB_ASSERT(dy.numel() == saved.numel() && dy.dtype() == saved.dtype() && dy.device() == saved.device());
  dispatch_float(dy.dtype(), "activation", [&]<class T>() {
    kernels::dispatch_activation_backward<compute_t<T>>(activation.activation, [&](auto f) {
      map(dy.device(), dy.numel(), dz.data<T>(), f, dy.data<T>(), saved.data<T>());
    });
  });
}

Tensor apply_dropout(const Tensor& x, float p, const Tensor& seed, std::uint64_t stream) {
  const Tensor y(x.shape(), x.dtype(), x.device());
  dispatch_float(x.dtype(), "dropout", [&]<class T>() {
    map(x.device(), x.numel(), y.data<T>(), kernels::Dropout<compute_t<T>>{p, seed.data<std::int64_t>(), stream},
        x.data<T>());
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
