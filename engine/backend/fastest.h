#pragma once
// SPDX-License-Identifier: MIT
//
// Chooses among algorithms by the clock.

#include <cstddef>
#include <functional>

namespace ab {

/// The fastest of `count` candidates, given in order of expectation. `milliseconds(i)` runs candidate i once and says
/// how long it took: infinity when it cannot run here. Each runs once to warm up, as first calls load code, and then
/// a few times, of which the shortest counts. A later candidate is taken only when it is faster by more than times
/// scatter, so that equal ones are not chosen at random. 0 when none can run.
std::size_t fastest(std::size_t count, const std::function<double(std::size_t)>& milliseconds);

}  // namespace ab
