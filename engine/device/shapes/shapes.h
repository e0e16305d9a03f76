#pragma once
// SPDX-License-Identifier: MIT
//
// The device of shapes: tensors without numbers, on which a run is rehearsed (apps/plan/rehearsal.h). Each thread has its own.
// It stands for a CPU or for a GPU, and takes the memory that kernels, and on a CPU its libraries' callers, take there.

#include <cstdint>

#include "engine/core/dtype.h"

namespace ab {

inline constexpr Device kShapesOfCpu{DeviceKind::shapes, 0}, kShapesOfGpu{DeviceKind::shapes, 1};

/// Floating-point operations of products, convolutions and attention on shapes, by this thread so far: a multiplication and an
/// addition count as two.
std::int64_t shapes_flops();

/// As in a new process: no scratch is held.
void restart_shapes(Device device);
/// The scratch of this thread's convolutions (backend/cpu/conv.h) has at least so many bytes from now on.
void hold_shapes_scratch(Device device, std::size_t bytes);

}  // namespace ab
