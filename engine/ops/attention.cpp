// SPDX-License-Identifier: MIT
#include "engine/ops/attention.h"

#include <cmath>

#include "engine/backend/backend.h"
#include "engine/kernels/softmax.h"

namespace ab {
namespace {

/// The matrices of all samples and heads, and where they lie.
struct HeadLayout {
  std::int64_t samples, heads, tokens, width;  // width: d
  double scale;                                // 1 / √d

  HeadLayout(const Tensor& qkv, std::int64_t head_count)
      : samples(qkv.dim(0)),
        heads(head_count),
        tokens(qkv.dim(1)),
        width(qkv.dim(2) / 3 / head_count),
        scale(1.0 / std::sqrt(static_cast<double>(width))) {}

  std::int64_t features() const { return heads * width; }
  /// Part 0, 1 or 2 of [N, T, 3D]: Q, K or V, [T, d] for each head.
  MatrixGrid part(std::int64_t index) const {
    return {index * features(), 3 * features(), 3 * features() * tokens, width};
  }
  /// [N, T, D] as [T, d] for each head.
  MatrixGrid output() const { return {0, features(), features() * tokens, width}; }
  /// [N, heads, T, T]
  MatrixGrid scores() const { return {0, tokens, heads * tokens * tokens, tokens * tokens}; }
  Shape scores_shape() const { return {samples, heads, tokens, tokens}; }

  /// A product of each head whose result is [T, T], summed over d, or [T, d], summed over T.
  BatchedGemmSpec product(std::int64_t n, std::int64_t k) const {
    return {.outer = samples, .inner = heads, .m = tokens, .n = n, .k = k};
  }
};

}  // namespace

AttentionResult attention_forward(const Tensor& qkv, std::int64_t heads) {
  AB_CHECK(qkv.rank() == 3 && qkv.numel() > 0 && heads > 0 && qkv.dim(2) % (3 * heads) == 0,
           "attention: qkv {} must be [N, T, 3D] with D a multiple of {} heads", qkv.shape().str(), heads);
  const HeadLayout layout(qkv, heads);
  Backend& math = backend(qkv.device());
  const AttentionResult result{Tensor({layout.samples, layout.tokens, layout.features()}, qkv.dtype(), qkv.device()),
                               Tensor(layout.scores_shape(), qkv.dtype(), qkv.device())};

  BatchedGemmSpec spec = layout.product(layout.tokens, layout.width);  // S = Q Kᵀ / √d
  spec.transpose_b = true;
  spec.alpha = layout.scale;
  spec.a = layout.part(0), spec.b = layout.part(1), spec.c = layout.scores();
  math.batched_gemm(spec, qkv, qkv, result.probabilities);
  softmax_in_place(result.probabilities);

  spec = layout.product(layout.width, layout.tokens);  // y = P V
  spec.a = layout.scores(), spec.b = layout.part(2), spec.c = layout.output();
  math.batched_gemm(spec, result.probabilities, qkv, result.y);
  return result;
}

Tensor attention_backward(const Tensor& dy, const Tensor& qkv, const Tensor& probabilities) {
  const HeadLayout layout(qkv, probabilities.dim(1));
  Backend& math = backend(qkv.device());
  const Tensor dqkv(qkv.shape(), qkv.dtype(), qkv.device());
  const Tensor dscores(layout.scores_shape(), qkv.dtype(), qkv.device());

  BatchedGemmSpec spec = layout.product(layout.width, layout.tokens);  // dV = Pᵀ dy
  spec.transpose_a = true;
  spec.a = layout.scores(), spec.b = layout.output(), spec.c = layout.part(2);
  math.batched_gemm(spec, probabilities, dy, dqkv);

  spec = layout.product(layout.tokens, layout.width);  // dP = dy Vᵀ
  spec.transpose_b = true;
  spec.a = layout.output(), spec.b = layout.part(2), spec.c = layout.scores();
  math.batched_gemm(spec, dy, qkv, dscores);
  softmax_backward_in_place(dscores, probabilities);

  spec = layout.product(layout.width, layout.tokens);  // dQ = dS K / √d
  spec.alpha = layout.scale;
  spec.a = layout.scores(), spec.b = layout.part(1), spec.c = layout.part(0);
  math.batched_gemm(spec, dscores, qkv, dqkv);

  spec.transpose_a = true;  // dK = dSᵀ Q / √d
  spec.b = layout.part(0), spec.c = layout.part(1);
  math.batched_gemm(spec, dscores, qkv, dqkv);
  return dqkv;
}

Var attention(const Var& qkv, std::int64_t heads) {
  const AttentionResult result = attention_forward(qkv.value(), heads);
  return record("attention", result.y, {qkv},
                [x = qkv.value(), probabilities = result.probabilities](const Tensor& dy) {
                  return Gradients{attention_backward(dy, x, probabilities)};
                });
}

}  // namespace ab
