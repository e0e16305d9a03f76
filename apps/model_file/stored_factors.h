#pragma once
// SPDX-License-Identifier: MIT
//
// Factored weights in a model file. A weight NAME of shape [O, ...], whose 2-D view is O × K in PyTorch's
// order of elements, is stored as NAME.a [m, r] and NAME.b [r, n], the factors of the tall orientation of
// that view (arXiv 2405.01067; m = max(O, K), n = min(O, K)):
//   O >= K: W2 = A·B      O < K: W2 = (A·B)ᵀ      W = W2 as [O, ...]
// Where the rest of the decomposition is kept, NAME.rest [O, ...] adds to W.
// "factored" in __metadata__ tells which weights those are: JSON, {"NAME": [O, ...], ...}.

#include <map>
#include <string>

#include "engine/io/safetensors.h"

namespace ab {

using FactoredWeights = std::map<std::string, Shape>;  ///< names, and the shapes of W

/// The text for the metadata.
std::string to_json(const FactoredWeights& weights);

/// What the metadata says; none without such metadata. Throws Error(checkpoint) unless A and B of each are in
/// the file and fit its shape, so that m, n and r may be taken from them; `file` names it in errors.
FactoredWeights factored_weights(const TensorFile& content, const std::string& file);

}  // namespace ab
