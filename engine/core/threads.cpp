// SPDX-License-Identifier: MIT
#include "engine/core/threads.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <latch>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "engine/core/check.h"
#include "engine/core/machine.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace ab {
namespace {

thread_local double cores_of_rank = 0;  // 0: nobody has asked
thread_local int threads_started = 1;   // which OpenMP keeps

[[maybe_unused]] bool environment_says() {
  const char* const threads = std::getenv("OMP_NUM_THREADS");
  return threads && std::atoi(threads) > 0;
}

/// Throws std::system_error when the system does not start as many threads at once.
void try_threads(std::ptrdiff_t count) {
  std::latch all_asked(1);
  std::vector<std::string> in_proc(static_cast<std::size_t>(count));
  {
    std::vector<std::jthread> threads;
    try {
      for (std::string& name : in_proc)
        threads.emplace_back([&] {
          name = fmt::format("/proc/self/task/{}", ::gettid());
          all_asked.wait();
        });
    } catch (...) {
      all_asked.count_down();
      throw;
    }
    all_asked.count_down();
  }
  // A thread counts until the system has put it away, a moment after it was joined.
  for (const std::string& name : in_proc)
    for (int tries = 0; tries < 100 && std::filesystem::exists(name); ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace

void set_compute_threads(int n, int ranks_here) {
  const bool is_known = n > 0 && cores_of_rank > 0;
  set_compute_threads_within(n,
                             is_known ? cores_of_rank : cores_of_first({available_cores()}) / std::max(1, ranks_here));
}

void set_compute_threads_within([[maybe_unused]] int n, double cores) {
  cores_of_rank = cores;
#ifdef _OPENMP
  if (n <= 0 && environment_says()) return;
  const int whole = static_cast<int>(cores + 1e-6);  // six thirds add up to a little less than two
  omp_set_num_threads(n > 0 ? n : std::max(1, whole));
#endif
}

void start_compute_threads() {
  if (compute_threads() <= threads_started) return;
  static std::mutex one_after_the_other;  // the threads of another rank may be those that are one too many
  const std::lock_guard guard(one_after_the_other);
  try {
    try_threads(compute_threads() - 1);
  } catch (const std::system_error& refused) {
    throw Error(
        ErrorKind::communication,
        fmt::format("the system refuses {} threads for a rank ({}); take fewer --threads or --ranks, or raise the "
                    "limit on processes (ulimit -u, a container's pids.max) or on memory (ulimit -v)",
                    compute_threads(), refused.code().message()));
  }
#pragma omp parallel
  {
    asm volatile("");  // a loop of nothing starts nothing
  }
  threads_started = compute_threads();
  AB_CHECK_KIND(
      communication, available_host_bytes() > 0,
      "{} threads for a rank leave no memory; take fewer --threads or --ranks, or raise the limit (ulimit -v)",
      threads_started);
}

int compute_threads() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

double compute_cores() { return cores_of_rank > 0 ? cores_of_rank : cores_of_first({available_cores()}); }

bool inside_parallel_loop() {
#ifdef _OPENMP
  return omp_in_parallel();
#else
  return false;
#endif
}

void for_each_in_threads(std::int64_t count, int threads, const std::function<void(std::int64_t i)>& visit) {
  std::atomic<std::int64_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    for (std::int64_t i = next++; i < count; i = next++) {
      try {
        visit(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next = count;
      }
    }
  };
  {
    std::vector<std::jthread> team;
    try {
      while (std::ssize(team) + 1 < std::min<std::int64_t>(threads, count)) team.emplace_back(work);
    } catch (const std::system_error&) {  // those that there are do it
    }
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace ab
