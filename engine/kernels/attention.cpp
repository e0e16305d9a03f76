// SPDX-License-Identifier: MIT
#include "engine/kernels/attention.h"

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

Tensor embed_tokens_forward(const Tensor& patches, const Tensor& class_token, const Tensor& position) {
  const std::int64_t samples = patches.dim(0), tokens = patches.dim(1) + 1, features = patches.dim(2);
  const Tensor y(Shape{samples, tokens, features}, patches.dtype(), patches.device());
  dispatch_float(y.dtype(), "embed_tokens", [&]<class T>() {
    for_each_row(y.device(), samples * tokens, features,
                 kernels::EmbedTokens<T>{patches.data<T>(), class_token.data<T>(), position.data<T>(), y.data<T>(),
                                         tokens, features});
  });
  return y;
}

Tensor take_tokens(const Tensor& x, std::int64_t begin, std::int64_t count) {
  const std::int64_t samples = x.dim(0), tokens = x.dim(1), features = x.dim(2), length = count * features;
  const Tensor y(Shape{samples, count, features}, x.dtype(), x.device());
  dispatch_float(x.dtype(), "take_tokens", [&]<class T>() {
    for_each_row(x.device(), samples, length,
                 kernels::CopyRows<T>{x.data<T>() + begin * features, y.data<T>(), tokens * features, length, length});
  });
  return y;
}

Tensor spread_first_token(const Tensor& x, std::int64_t tokens) {
  const std::int64_t samples = x.dim(0), features = x.dim(1);
  const Tensor y = Tensor::zeros(Shape{samples, tokens, features}, x.dtype(), x.device());
  dispatch_float(x.dtype(), "spread_first_token", [&]<class T>() {
    for_each_row(x.device(), samples, features,
                 kernels::CopyRows<T>{x.data<T>(), y.data<T>(), features, tokens * features, features});
  });
  return y;
}

}  // namespace ab
