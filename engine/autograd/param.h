#pragma once
// SPDX-License-Identifier: MIT
//
// A trained tensor with its name and its part in data-parallel and AB-training (arXiv 2405.01067).

#include <string>
#include <vector>

#include "engine/autograd/var.h"

namespace ab {

/// Who exchanges the gradient of a parameter, and when.
enum class ParamRole {
  weight,       ///< a matrix or convolution that AB-training may factorise
  vector,       ///< bias or norm affine: never factorised
  always_sync,  ///< kept at full rank on purpose (first layer, classifier)
  factor_a,     ///< the tall factor A of W = A·B
  factor_b,     ///< the small factor B
};

struct Param {
  std::string name;  ///< dotted path, torchvision's where it has one: "layer1.0.conv1.weight"
  Var value;
  ParamRole role = ParamRole::weight;

  bool is_factor() const { return role == ParamRole::factor_a || role == ParamRole::factor_b; }
  bool trainable() const { return value.requires_grad(); }
  std::int64_t numel() const { return value.value().numel(); }
};

}  // namespace ab
