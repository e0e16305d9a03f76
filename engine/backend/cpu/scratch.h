#pragma once
// SPDX-License-Identifier: MIT
//
// Working memory of the CPU's convolutions, one buffer per thread: a rank may be a thread, so nothing is shared, and
// no rank waits for another.

#include <cstddef>

namespace ab::cpu {

/// At least `bytes` bytes, aligned to 64, valid until the next call on this thread.
std::byte* scratch(std::size_t bytes);

}  // namespace ab::cpu
