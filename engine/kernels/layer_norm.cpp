// SPDX-License-Identifier: MIT
#include "engine/kernels/layer_norm.h"

#include "engine/kernels/reduce.h"

namespace ab {

LayerNormResult layer_norm_forward(const Tensor& x, const Tensor& gamma, const Tensor& beta, double epsilon) {
  const std::int64_t channels = x.dim(-1), rows = x.numel() / channels;
  return dispatch_float(x.dtype(), "layer_norm", [&]<class T>() {
    using C = compute_t<T>;
    const LayerNormResult result{Tensor(x.shape(), x.dtype(), x.device()),
                                 Tensor(Shape{rows}, dtype_of<C>, x.device()),
                                 Tensor(Shape{rows}, dtype_of<C>, x.device())};
    for_each_row(x.device(), rows, channels,
                 kernels::LayerNorm<T>{x.data<T>(), gamma.data<C>(), beta.data<C>(), result.y.data<T>(),
                                       result.mean.data<C>(), result.rstd.data<C>(), channels,
                                       static_cast<C>(epsilon)});
    return result;
  });
}

LayerNormGrads layer_norm_backward(const Tensor& dy, const Tensor& x, const Tensor& mean, const Tensor& rstd,
                                   const Tensor& gamma, bool needs_dx, bool needs_affine) {
  const std::int64_t channels = x.dim(-1), rows = x.numel() / channels;
  LayerNormGrads grads;
  dispatch_float(x.dtype(), "layer_norm", [&]<class T>() {
    using C = compute_t<T>;
    if (needs_dx) {
      grads.dx = Tensor(x.shape(), x.dtype(), x.device());
      for_each_row(x.device(), rows, channels,
                   kernels::LayerNormBackward<T>{dy.data<T>(), x.data<T>(), mean.data<C>(), rstd.data<C>(),
                                                 gamma.data<C>(), grads.dx.data<T>(), channels});
    }
    if (needs_affine) {
      const std::int64_t chunk_rows = std::max<std::int64_t>(16, kernels::kReduceChunk / channels);
      const std::int64_t chunks = (rows + chunk_rows - 1) / chunk_rows;
      const Tensor sum_dy(Shape{chunks, channels}, dtype_of<C>, x.device());
      const Tensor sum_dyhat(Shape{chunks, channels}, dtype_of<C>, x.device());
      for_each_row(x.device(), chunks, chunk_rows * channels,
                   kernels::LayerNormChunkGradSums<T>{dy.data<T>(), x.data<T>(), mean.data<C>(),
                                                      rstd.data<C>(), sum_dy.data<C>(), sum_dyhat.data<C>(),
                                                      rows, channels, chunk_rows});
      grads.dbeta = column_sums(sum_dy);
      grads.dgamma = column_sums(sum_dyhat);
    }
  });
  return grads;
}

}  // namespace ab
