#pragma once
// SPDX-License-Identifier: MIT
//
// Into and out of the token sequence of a vision transformer (Dosovitskiy et al. 2021).

#include "engine/autograd/var.h"

namespace ab {

/// Puts the class token in front of the patches and adds the position embedding:
///   y[n, 0] = class_token + position[0],  y[n, t] = patches[n, t − 1] + position[t]
/// patches: [N, T, D], class_token: [1, 1, D], position: [1, T + 1, D]  -> [N, T + 1, D]
Var embed_tokens(const Var& patches, const Var& class_token, const Var& position);

/// y[n] = x[n, 0]      x: [N, T, D] -> [N, D]
Var first_token(const Var& x);

}  // namespace ab
