#pragma once
// SPDX-License-Identifier: MIT
//
// Graphs of the emulated GPU (engine/device/graph.h): while a thread captures, whatever it issues to that GPU is kept
// as a function, with the addresses that it was given, and runs when the graph is launched.

#include <functional>

#include "engine/core/dtype.h"

namespace ab::emulated_gpu {

/// Whether the calling thread captures what it issues to `device`.
bool capturing(Device device);
/// The next piece of work of the graph that is captured.
void capture(std::function<void()> work);
/// Throws Bug that names `what` while this thread captures: a graph cannot hold it.
void refuse_in_capture(const char* what);

}  // namespace ab::emulated_gpu
