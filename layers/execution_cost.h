#pragma once
// SPDX-License-Identifier: MIT
//
// When two thin operations are cheaper than forming W = A·B and running the dense one.

#include "engine/backend/backend.h"
#include "layers/weight.h"

namespace ab {

/// How often each factor is applied: the inner one to every row of an image where it is 1×k and the outer one is k×1.
struct FactorPositions {
  std::int64_t inner = 0;
  std::int64_t outer = 0;  ///< as often as W
};

/// Multiply-adds of one training step of a factored layer, the input gradient included; K and O: columns and rows of W2
///   two thin ops   inner · 2·r·K + outer · 2·r·O, plus inner · r·K and outer · r·O for the factors in training
///   form W         outer · 3·O·K, plus O·r·K to form W and as much for the gradient of each trained factor
/// `dense_advantage` divides the dense work: on a CPU, Winograd runs a 3×3 convolution at about half its nominal
/// cost, which thin filters of few channels cannot use.
bool factors_are_cheaper(const Weight& weight, const FactorPositions& positions, double dense_advantage);

/// Whether a linear layer over `rows` inputs runs its factors: never when dense or with a rest, which needs W;
/// otherwise as weight.execution() says.
bool run_factors(const Weight& weight, std::int64_t rows);
/// The same for a convolution.
bool run_factors(const Weight& weight, const Conv2dSpec& spec);

}  // namespace ab
