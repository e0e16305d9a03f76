#pragma once
// SPDX-License-Identifier: MIT
//
// Multi-head self-attention (Vaswani et al. 2017, section 3.2), all heads in one call.

#include "engine/autograd/var.h"

namespace ab {

/// y_h = P_h V_h,  P_h = softmax(Q_h K_hᵀ / √d)      d = D / heads
/// dV = Pᵀ dy,  dP = dy Vᵀ,  dS = P ∘ (dP − rowsum(P ∘ dP)),  dQ = dS K / √d,  dK = dSᵀ Q / √d, for each head
/// qkv: [N, T, 3D]: each token's query, key and value, of `heads` parts with d elements each  -> y: [N, T, D]
Var attention(const Var& qkv, std::int64_t heads);

// Into and out of the token sequence of a vision transformer (Dosovitskiy et al. 2021).

/// Puts the class token in front of the patches and adds the position embedding:
///   y[n, 0] = class_token + position[0],  y[n, t] = patches[n, t − 1] + position[t]
/// patches: [N, T, D], class_token: [1, 1, D], position: [1, T + 1, D]  -> [N, T + 1, D]
Var embed_tokens(const Var& patches, const Var& class_token, const Var& position);

/// y[n] = x[n, 0]      x: [N, T, D] -> [N, D]
Var first_token(const Var& x);

}  // namespace ab
