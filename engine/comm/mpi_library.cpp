// SPDX-License-Identifier: MIT
#include "engine/comm/mpi_library.h"

#include <pthread.h>
#include <signal.h>

#include <chrono>

#include "engine/comm/mpi_operation.h"

namespace ab {
namespace {

/// Between two looks at what is in flight. Shorter ones would take the core from the ranks that compute.
constexpr std::chrono::microseconds kPause{100};

}  // namespace

MpiLibrary& MpiLibrary::instance() {
  static MpiLibrary library;
  return library;
}

MpiLibrary::MpiLibrary() {
  int initialised = 0, level = 0;
  check_mpi(MPI_Initialized(&initialised), "MPI_Initialized");
  if (initialised) {
    check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
  } else {
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
    ours_ = true;
  }
  check_mpi(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  AB_CHECK_KIND(communication, level >= MPI_THREAD_SERIALIZED,
                "this MPI library does not support threads (MPI_THREAD_SERIALIZED); use a build of it that does");
}

MpiLibrary::~MpiLibrary() {
  advancing_ = {};
  if (ours_ && !failed_) MPI_Finalize();
}

void MpiLibrary::keep_advancing(const void* who, std::function<bool()> advance) {
  in_flight_.try_emplace(who, std::move(advance));
  if (!advancing_.joinable()) {
    // Signals are for the threads of ranks.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    advancing_ = std::jthread([this](const std::stop_token& stop) { advance_all(stop); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  started_.notify_one();
}

void MpiLibrary::advance_all(const std::stop_token& stop) {
  Lock lock(mutex_);
  while (started_.wait(lock, stop, [this] { return !in_flight_.empty(); }) && !stop.stop_requested()) {
    std::erase_if(in_flight_, [](const auto& entry) { return entry.second(); });
    lock.unlock();
    std::this_thread::sleep_for(kPause);
    lock.lock();
  }
}

}  // namespace ab
