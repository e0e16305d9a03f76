// SPDX-License-Identifier: MIT
#include "engine/kernels/layer_norm.h"

namespace ab {

LayerNormResult layer_norm_forward(const Tensor& x, const Tensor& gamma, const Tensor& beta, double epsilon) {
  const std::int64_t channels = x.dim(-1), rows = x.numel() / channels;
  return dispatch_float(x.dtype(), "layer_norm", [&]<class T>() {
    using C = compute_t<T>;
    const LayerNormResult result{Tensor(x.shape(), x.dtype(), x.device()), Tensor(Shape{rows}, dtype_of<C>, x.device()),
                                 Tensor(Shape{rows}, dtype_of<C>, x.device())};
    for_each_row(x.device(), rows, channels,
                 kernels::LayerNorm<T>{x.data<T>(), gamma.data<C>(), beta.data<C>(), result.y.data<T>(),
                                       result.mean.data<C>(), result.rstd.data<C>(), channels,
                                       static_cast<C>(epsilon)});
    return result;
  });
}

Tensor layer_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                           const Tensor& gamma, const Tensor& addend) {
  const std::int64_t channels = x.dim(-1), rows = x.numel() / channels;
  Tensor dx(x.shape(), x.dtype(), x.device());
  dispatch_float(x.dtype(), "layer_norm", [&]<class T>() {
    using C = compute_t<T>;
    for_each_row(x.device(), rows, channels,
                 kernels::LayerNormBackward<T>{dy.data<T>(), x.data<T>(), mean.data<C>(), rstd.data<C>(),
                                               gamma.data<C>(), addend.defined() ? addend.data<T>() : nullptr,
                                               dx.data<T>(), channels});
  });
  return dx;
}

AffineGrads layer_norm_affine_backward(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& rstd) {
  const Shape per_channel{x.dim(-1)};
  AffineGrads grads;
  dispatch_float(x.dtype(), "layer_norm", [&]<class T>() {
    using C = compute_t<T>;
    const kernels::PixelTable table = kernels::column_table(x);
    const Shape per_chunk{table.chunks(), table.columns()};
    const Tensor sum_dy(per_chunk, dtype_of<C>, x.device()), sum_dyhat(per_chunk, dtype_of<C>, x.device());
    for_each_row(x.device(), table.chunks(), table.chunk_rows * table.columns(),
                 kernels::LayerNormChunkGradSums<T>{table, dy.data<T>(), x.data<T>(), mean.data<C>(), rstd.data<C>(),
                                                    sum_dy.data<C>(), sum_dyhat.data<C>()});
    grads.dbeta = Tensor(per_channel, dtype_of<C>, x.device());
    grads.dgamma = Tensor(per_channel, dtype_of<C>, x.device());
    kernels::sum_column_partials<C>(table, sum_dy, grads.dbeta);
    kernels::sum_column_partials<C>(table, sum_dyhat, grads.dgamma);
  });
  return grads;
}

}  // namespace ab
