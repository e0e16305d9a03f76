#pragma once
// SPDX-License-Identifier: MIT

#include <cstdint>

namespace ab {

/// Floating-point operations of products, convolutions and attention on the device of shapes, by this thread so far: a
/// multiplication and an addition count as two.
std::int64_t shapes_flops();

}  // namespace ab
