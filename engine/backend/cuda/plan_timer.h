#pragma once
// SPDX-License-Identifier: MIT
//
// The device's clock for plans with several candidates.

#include <cstddef>
#include <functional>

#include "engine/backend/cuda/handles.h"
#include "engine/backend/fastest.h"

namespace ab::cuda {

/// How long `work` takes on the stream; infinity when the library refuses to do it. Waits for the device.
double milliseconds(cudaStream_t stream, const std::function<void()>& work);

/// Whether what is issued to the stream is being recorded in a graph, so that nothing can be waited for.
bool is_capturing(cudaStream_t stream);

/// Leaves of a plan's candidates the fastest. `run(i)` runs candidate i on the stream; its results are overwritten
/// by those of the next.
template <class Plan, class Run> void keep_fastest(Plan& plan, cudaStream_t stream, const Run& run) {
  if (plan.candidates() == 1 || is_capturing(stream)) return;
  plan.keep(fastest(plan.candidates(),
                    [&](std::size_t i) { return milliseconds(stream, [&] { run(i); }); }));
}

}  // namespace ab::cuda
