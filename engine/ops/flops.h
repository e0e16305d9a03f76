#pragma once
// SPDX-License-Identifier: MIT
//
// How much forward and backward passes compute.

#include <cstdint>

namespace ab {

/// Floating-point operations of products, convolutions and attention that passes of this thread have asked for so far, on any device
/// and whatever algorithm computes them: a multiplication and an addition count as two.
std::int64_t flops_so_far();
void count_multiplications(std::int64_t count);

}  // namespace ab
