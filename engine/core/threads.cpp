// SPDX-License-Identifier: MIT
#include "engine/core/threads.h"

#include <algorithm>
#include <cstdlib>
#include <thread>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace ab {

void set_compute_threads([[maybe_unused]] int n, [[maybe_unused]] int ranks_here) {
#ifdef _OPENMP
  if (n <= 0) {
    if (std::getenv("OMP_NUM_THREADS")) return;
    n = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / std::max(1, ranks_here));
  }
  omp_set_num_threads(n);
#endif
}

int compute_threads() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

bool inside_parallel_loop() {
#ifdef _OPENMP
  return omp_in_parallel();
#else
  return false;
#endif
}

}  // namespace ab
