// SPDX-License-Identifier: MIT
#include "engine/ops/tokens.h"

#include "engine/kernels/reduce.h"
#include "engine/kernels/tokens.h"
#include "engine/ops/checks.h"

namespace ab {

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
