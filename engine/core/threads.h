#pragma once
// SPDX-License-Identifier: MIT
//
// How many threads the kernels of the calling rank use. The setting belongs to the calling thread, because a
// rank may be a thread of a process that holds several.

namespace ab {

/// n > 0: that many. n = 0: the cores of this machine shared among `ranks_here` ranks, at least one, unless
/// OMP_NUM_THREADS says otherwise.
void set_compute_threads(int n, int ranks_here = 1);
int compute_threads();
/// Whether the calling thread is one of several that share a loop; what it calls stays on it.
bool inside_parallel_loop();

}  // namespace ab
