#pragma once
// SPDX-License-Identifier: MIT
//
// Backend's 2-D convolutions on a GPU: those that are matrix products as matrix products, the others by
// cuDNN.

#include "engine/backend/backend.h"
#include "engine/backend/cuda/thread_libraries.h"

namespace ab::cuda {

void conv2d_forward(ThreadLibraries& libraries, const Conv2dSpec& spec, const Tensor& x, const Tensor& w,
                    const Epilogue& epilogue, const Tensor& y);
Tensor conv2d_forward_summed(ThreadLibraries& libraries, const Conv2dSpec& spec, const Tensor& x, const Tensor& w,
                             const Tensor& bias, const Tensor& y);
void conv2d_backward_data(ThreadLibraries& libraries, const Conv2dSpec& spec, const Tensor& dy, const Tensor& w,
                          const Tensor& dx, const Epilogue& epilogue);
void conv2d_backward_weight(ThreadLibraries& libraries, const Conv2dSpec& spec, const Tensor& dy, const Tensor& x,
                            const Tensor& dw, const Tensor& db);

}  // namespace ab::cuda
