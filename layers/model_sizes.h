#pragma once
// SPDX-License-Identifier: MIT

#include "engine/plan/model_sizes.h"
#include "layers/layer.h"

namespace ab {

/// How large the parts of `model` are; only shapes are looked at.
ModelSizes sizes_of(Layer& model);

}  // namespace ab
