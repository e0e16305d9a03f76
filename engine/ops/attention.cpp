// SPDX-License-Identifier: MIT
#include "engine/ops/attention.h"

#include <cmath>

#include "engine/backend/backend.h"
#include "engine/kernels/attention.h"
#include "engine/kernels/reduce.h"
#include "engine/ops/checks.h"
#include "engine/ops/flops.h"

namespace ab {
namespace {

constexpr std::int64_t kRowBytes = 16;

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
  /// [N, heads, T, T], each row of which takes `stored` elements.
  MatrixGrid scores(std::int64_t stored) const { return {0, stored, heads * tokens * stored, tokens * stored}; }
  /// On a GPU rows begin where its products read fastest.
  Tensor make_scores(const Tensor& like) const {
    const std::int64_t multiple =
        like.device().is_like_cpu() ? 1 : kRowBytes / static_cast<std::int64_t>(size_of(like.dtype()));
    return Tensor({samples, heads, tokens, (tokens + multiple - 1) / multiple * multiple}, like.dtype(), like.device());
  }
  AttentionSpec spec(DType dtype) const { return {samples, heads, tokens, width, dtype}; }

  /// A product of each head whose result is [T, T], summed over d, or [T, d], summed over T.
  BatchedGemmSpec product(std::int64_t n, std::int64_t k) const {
    return {.outer = samples, .inner = heads, .m = tokens, .n = n, .k = k};
  }
  /// Of each product.
  std::int64_t multiplications() const { return samples * features() * tokens * tokens; }
};

/// Backward needs P, or, where the backend fuses attention and P is never in memory, the logarithms of its rows' sums.
struct AttentionResult {
  Tensor y;
  Tensor probabilities;  ///< P: [N, heads, T, at least T], the first T of each row
  Tensor log_sums;       ///< ln Σ exp(Q_h K_hᵀ / √d) by rows: [N, heads, T] float32
};

AttentionResult attention_forward(const Tensor& qkv, std::int64_t heads) {
  AB_CHECK(qkv.rank() == 3 && qkv.numel() > 0 && heads > 0 && qkv.dim(2) % (3 * heads) == 0,
           "attention: qkv {} must be [N, T, 3D] with D a multiple of {} heads", qkv.shape().str(), heads);
  const HeadLayout layout(qkv, heads);
  Backend& math = backend(qkv.device());
  count_multiplications(2 * layout.multiplications());
  AttentionResult result;
  result.y = Tensor({layout.samples, layout.tokens, layout.features()}, qkv.dtype(), qkv.device());
  if (const AttentionSpec fused = layout.spec(qkv.dtype()); math.has_fused_attention(fused)) {
    result.log_sums = Tensor({layout.samples, heads, layout.tokens}, DType::float32, qkv.device());
    math.attention_forward(fused, qkv, result.y, result.log_sums);
    return result;
  }
  result.probabilities = layout.make_scores(qkv);
  const std::int64_t stored = result.probabilities.dim(-1);

  BatchedGemmSpec spec = layout.product(layout.tokens, layout.width);  // S = Q Kᵀ / √d
  spec.transpose_b = true;
  spec.alpha = layout.scale;
  spec.a = layout.part(0), spec.b = layout.part(1), spec.c = layout.scores(stored);
  math.batched_gemm(spec, qkv, qkv, result.probabilities);
  softmax_in_place(result.probabilities, layout.tokens);

  spec = layout.product(layout.width, layout.tokens);  // y = P V
  spec.a = layout.scores(stored), spec.b = layout.part(2), spec.c = layout.output();
  math.batched_gemm(spec, result.probabilities, qkv, result.y);
  return result;
}

/// dy: [N, T, D] -> dqkv: [N, T, 3D]
Tensor attention_backward(const Tensor& dy, const Tensor& qkv, std::int64_t heads, const AttentionResult& forward) {
  const HeadLayout layout(qkv, heads);
  Backend& math = backend(qkv.device());
  count_multiplications(4 * layout.multiplications());
  const Tensor dqkv(qkv.shape(), qkv.dtype(), qkv.device());
  if (forward.log_sums.defined()) {
    math.attention_backward(layout.spec(qkv.dtype()), {dy, qkv, forward.y, forward.log_sums}, dqkv);
    return dqkv;
  }
  const Tensor& probabilities = forward.probabilities;
  const Tensor dscores(probabilities.shape(), qkv.dtype(), qkv.device());
  const MatrixGrid scores = layout.scores(probabilities.dim(-1));

  BatchedGemmSpec spec = layout.product(layout.width, layout.tokens);  // dV = Pᵀ dy
  spec.transpose_a = true;
  spec.a = scores, spec.b = layout.output(), spec.c = layout.part(2);
  math.batched_gemm(spec, probabilities, dy, dqkv);

  spec = layout.product(layout.tokens, layout.width);  // dP = dy Vᵀ
  spec.transpose_b = true;
  spec.a = layout.output(), spec.b = layout.part(2), spec.c = scores;
  math.batched_gemm(spec, dy, qkv, dscores);
  softmax_backward_in_place(dscores, probabilities, layout.tokens);

  spec = layout.product(layout.width, layout.tokens);  // dQ = dS K / √d
  spec.alpha = layout.scale;
  spec.a = scores, spec.b = layout.part(1), spec.c = layout.part(0);
  math.batched_gemm(spec, dscores, qkv, dqkv);

  spec.transpose_a = true;  // dK = dSᵀ Q / √d
  spec.b = layout.part(0), spec.c = layout.part(1);
  math.batched_gemm(spec, dscores, qkv, dqkv);
  return dqkv;
}

}  // namespace

Var attention(const Var& qkv, std::int64_t heads) {
  const AttentionResult result = attention_forward(qkv.value(), heads);
  return record("attention", result.y, {qkv}, [x = qkv.value(), heads, result](const Tensor& dy) {
    return Gradients{attention_backward(dy, x, heads, result)};
  });
}

Var embed_tokens(const Var& patches, const Var& class_token, const Var& position) {
  const Shape x = patches.shape();
  AB_CHECK(x.rank() == 3 && patches.value().numel() > 0, "embed_tokens: expected patches [N, T, D], got {}", x.str());
  AB_CHECK(class_token.value().numel() == x[2] && position.value().numel() == (x[1] + 1) * x[2],
           "embed_tokens: class_token {} and position {} do not fit patches {}; expected [1, 1, D] and [1, T + 1, D]",
           class_token.shape().str(), position.shape().str(), x.str());
  check_alike("embed_tokens", patches.value(), "class_token", class_token.value());
  check_alike("embed_tokens", patches.value(), "position", position.value());

  const bool needs_patches = patches.requires_grad(), needs_token = class_token.requires_grad();
  const bool needs_position = position.requires_grad();
  // dpatches = dy without its first tokens, dposition = Σ_n dy, dclass_token = dposition[0]
  return record("embed_tokens", embed_tokens_forward(patches.value(), class_token.value(), position.value()),
                {patches, class_token, position}, [=](const Tensor& dy) {
                  Gradients grads(3);
                  if (needs_patches) grads[0] = take_tokens(dy, 1, x[1]);
                  if (!needs_token && !needs_position) return grads;
                  const Tensor over_samples = column_sums(dy.view({x[0], (x[1] + 1) * x[2]}));
                  if (needs_token) grads[1] = over_samples.slice(0, x[2]).clone().view({1, 1, x[2]});
                  if (needs_position) grads[2] = over_samples.view({1, x[1] + 1, x[2]});
                  return grads;
                });
}

Var first_token(const Var& x) {
  const Shape shape = x.shape();
  AB_CHECK(shape.rank() == 3 && x.value().numel() > 0, "first_token: expected x [N, T, D], got {}", shape.str());
  return record("first_token", take_tokens(x.value(), 0, 1).view({shape[0], shape[2]}), {x},
                [tokens = shape[1]](const Tensor& dy) { return Gradients{spread_first_token(dy, tokens)}; });
}

}  // namespace ab
