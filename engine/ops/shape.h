#pragma once
// SPDX-License-Identifier: MIT
//
// Changes of shape; elements are shared, not copied.

#include "engine/autograd/var.h"

namespace ab {

/// The same elements in a different shape; one dimension may be -1.
Var reshape(const Var& x, const Shape& shape);
/// [N, ...] -> [N, product of the rest]
Var flatten(const Var& x);

}  // namespace ab
