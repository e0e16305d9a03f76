#pragma once
// SPDX-License-Identifier: MIT
//
// How many threads the kernels of the calling rank use. The setting belongs to the calling thread, because a
// rank may be a thread of a process that holds several.

#include <cstdint>
#include <functional>

namespace ab {

/// n > 0: that many. n = 0: as many as the calling thread has cores (affinity mask, CPU quota), shared among `ranks_here` ranks
/// of this process, at least one, unless OMP_NUM_THREADS says otherwise.
void set_compute_threads(int n, int ranks_here = 1);
/// The same for a rank that has so many cores for itself, maybe no whole number: a thread for each whole one.
void set_compute_threads_within(int n, double cores);
/// Starts the threads that were set. Throws Error(communication) when the system refuses them, for which OpenMP would end the
/// program.
void start_compute_threads();
int compute_threads();
/// The cores that the calling rank has for itself, as a number; among processes, the least that any of them has.
double compute_cores();
/// Whether the calling thread is one of several that share a loop; what it calls stays on it.
bool inside_parallel_loop();

/// Calls visit(i) for 0 … count-1 from so many threads, or from fewer where the system refuses them. When a call throws, no more
/// are made, and the first exception is thrown again.
void for_each_in_threads(std::int64_t count, int threads, const std::function<void(std::int64_t i)>& visit);

}  // namespace ab
