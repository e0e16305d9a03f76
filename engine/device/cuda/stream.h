#pragma once
// SPDX-License-Identifier: MIT
//
// Streams and events of the calling thread's current device.

#include "engine/device/cuda/handles.h"

namespace ab::cuda {

/// One that waits for no other.
Stream make_stream();

/// An event to wait for, which is as good as recorded until it is.
Event make_event();
/// An event that knows when it happened.
Event make_timed_event();

}  // namespace ab::cuda
