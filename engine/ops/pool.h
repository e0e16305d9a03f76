#pragma once
// SPDX-License-Identifier: MIT
//
// Pooling over the two spatial dimensions of NHWC activations.

#include "engine/autograd/var.h"

namespace ab {

struct Pool2dOptions {
  std::int64_t kernel = 2, stride = 2, padding = 0;
};

/// Largest value of each window; padding never wins. The gradient goes to the first largest element.
Var max_pool2d(const Var& x, const Pool2dOptions& options);
/// Mean of each window; padded zeros count, as in PyTorch's default.
Var avg_pool2d(const Var& x, const Pool2dOptions& options);
/// Mean over windows [floor(i·H/out_h), ceil((i+1)·H/out_h)) × the same in width.   -> [N, out_h, out_w, C]
Var adaptive_avg_pool2d(const Var& x, std::int64_t out_h, std::int64_t out_w);
/// Mean over all positions.   [N, H, W, C] -> [N, C]
Var global_avg_pool2d(const Var& x);

}  // namespace ab
