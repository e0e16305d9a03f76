#pragma once
// SPDX-License-Identifier: MIT
//
// 2-D convolutions on a GPU: matrix products where they are nothing else, cuDNN for the rest. Tensors go by
// their role, as in cudnn_conv.h: the one that `direction` computes is overwritten, the other two are read.

#include "engine/backend/backend.h"
#include "engine/backend/cuda/thread_context.h"

namespace ab::cuda {

/// x: [N, H, W, I], w: [O, kh, kw, I/groups], y: [N, H', W', O], all of one element type.
void conv2d(ThreadContext& context, const Conv2dSpec& spec, ConvDirection direction, const Tensor& x,
            const Tensor& w, const Tensor& y);

}  // namespace ab::cuda
