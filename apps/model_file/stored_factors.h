#pragma once
// SPDX-License-Identifier: MIT
//
// Factored weights in a model file. A weight NAME of shape [O, ...] is a matrix W2 (layers/weight.h) in PyTorch's order of
// elements:
//   O × K                       W = W2 as [O, ...]
//   spatial: (O·kh) × (I·kw)    W[o, i, y, x] = W2[o·kh + y, i·kw + x], a convolution [O, I, kh, kw]
// It is stored as NAME.a [m, r] and NAME.b [r, n], the factors of its tall orientation (arXiv 2405.01067): W2 = A·B where it has
// at least as many rows as columns, else W2 = (A·B)ᵀ. Where the rest of the decomposition is kept, NAME.rest [O, ...] adds to W.
// __metadata__ tells which weights those are, as JSON: "factored": {"NAME": [O, ...], ...}, and of them, where there are any,
// "spatial": ["NAME", ...].

#include <map>
#include <string>

#include "engine/io/safetensors.h"

namespace ab {

struct FactoredShape {
  Shape shape;  ///< of W
  bool spatial = false;

  /// Rows of W2.
  std::int64_t rows() const { return shape[0] * (spatial ? shape[2] : 1); }
  std::int64_t columns() const { return shape.numel() / rows(); }
};
using FactoredWeights = std::map<std::string, FactoredShape>;  ///< by name

/// Adds the texts for the metadata, and returns whether there are spatial factors.
bool describe(const FactoredWeights& weights, std::map<std::string, std::string>& metadata);

/// The factors that the metadata names; none without such metadata. Throws Error(checkpoint) unless A and B of each are in
/// the file and fit its shape, so that m, n and r may be taken from them; `file` names it in errors.
FactoredWeights factored_weights(const TensorFile& content, const std::string& file);

}  // namespace ab
