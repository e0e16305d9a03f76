#pragma once
// SPDX-License-Identifier: MIT
//
// Backend's fused attention on a GPU.

#include "engine/backend/backend.h"
#include "engine/backend/cuda/thread_libraries.h"

namespace ab::cuda {

/// Makes the plans at first use.
bool has_fused_attention(ThreadLibraries& libraries, const AttentionSpec& spec);
void attention_forward(ThreadLibraries& libraries, const AttentionSpec& spec, const Tensor& qkv, const Tensor& y,
                       const Tensor& log_sums);
void attention_backward(ThreadLibraries& libraries, const AttentionSpec& spec, const Backend::AttentionBackward& of,
                        const Tensor& dqkv);

}  // namespace ab::cuda
