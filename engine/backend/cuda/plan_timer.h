#pragma once
// SPDX-License-Identifier: MIT
//
// The device's clock for plans with several candidates.

#include <cstddef>
#include <functional>

#include "engine/backend/cuda/thread_libraries.h"
#include "engine/backend/plan_choice.h"

namespace ab::cuda {

/// How long `work` takes on the stream; infinity when the library refuses to do it. Waits for the device.
double milliseconds(cudaStream_t stream, const std::function<void()>& work);

/// Keeps only the fastest of a plan's candidates, except in a capture, where nothing can be waited for. `run(i)` runs
/// candidate i on the stream of `libraries`; its results are overwritten by those of the next.
template <class Plan, class Run> void keep_fastest(Plan& plan, const ThreadLibraries& libraries, const Run& run) {
  if (plan.candidates() == 1 || libraries.stream().capture()) return;
  plan.keep(fastest(plan.candidates(),
                    [&](std::size_t i) { return milliseconds(libraries.stream().handle(), [&] { run(i); }); }));
}

}  // namespace ab::cuda
