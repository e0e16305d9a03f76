#pragma once
// SPDX-License-Identifier: MIT
//
// The common part of a rank's NCCL communicators: a GPU, the stream that all their collectives run on, and
// how they end when something fails. NCCL's calls do not block (config.blocking = 0), so that this rank can always
// give up; a watchdog thread looks after collectives that the GPU works on while the rank's own thread computes.

#include <nccl.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "engine/comm/texts.h"
#include "engine/device/cuda/runtime.h"
#include "engine/device/cuda/staging.h"

namespace ab {

/// Throws Error(communication) with NCCL's own words. ncclInProgress is no failure.
void check_nccl(ncclResult_t status, const char* call);
#define AB_NCCL(call) ::ab::check_nccl((call), #call)

/// An event that its recorder, the watchdog and a request hold together.
using SharedEvent = std::shared_ptr<std::remove_pointer_t<cudaEvent_t>>;
SharedEvent record_event(cudaStream_t stream);

class NcclWorld {
 public:
  NcclWorld(std::unique_ptr<Bootstrap> bootstrap, int device_index, std::chrono::seconds timeout);
  /// All communicators have been destroyed before.
  ~NcclWorld();
  NcclWorld(const NcclWorld&) = delete;
  NcclWorld& operator=(const NcclWorld&) = delete;

  Bootstrap& bootstrap() { return *bootstrap_; }
  int device_index() const { return device_index_; }
  std::chrono::seconds timeout() const { return timeout_; }
  cudaStream_t stream() const { return stream_.get(); }
  /// Transfers between host memory and the GPU that must not wait for computation.
  cudaStream_t copy_stream() const { return copy_stream_.get(); }
  cuda::PinnedStaging& staging() { return staging_; }

  /// Collective: makes a communicator by `create(&communicator)`. `parent`: the one it is split from, or null.
  template <class Create> ncclComm_t create(ncclComm_t parent, const std::string& what, const Create& create) {
    Lock lock(mutex_);
    throw_if_failed();
    being_made_ = std::make_shared<ncclComm_t>(nullptr);
    accept(lock, create(being_made_.get()), what);
    if (parent) settle(lock, parent, what);  // until then NCCL has not filled it in
    const ncclComm_t made = *being_made_;
    communicators_.push_back(made);
    settle(lock, made, what);
    being_made_.reset();
    return made;
  }
  /// Collective. Waits for its peers; with `leave_alone` it does not, and ends the world instead.
  void destroy(ncclComm_t communicator, bool leave_alone) noexcept;

  /// Issues a collective by `call()` on stream(), after `ready`; returns the event of its end. Errors call it `what`.
  template <class Call>
  SharedEvent issue(ncclComm_t communicator, std::string what, SharedEvent ready, const Call& call) {
    Lock lock(mutex_);
    throw_if_failed();
    AB_CUDA(cudaStreamWaitEvent(stream(), ready.get()));
    accept(lock, call(), what);
    settle(lock, communicator, what);
    SharedEvent done = record_event(stream());
    running_.push_back({communicator, std::move(what), std::move(ready), done, {}});
    return done;
  }
  /// Throws when the world has failed: results of collectives are then undefined.
  void check() {
    const Lock lock(mutex_);
    throw_if_failed();
  }
  /// Ends all collectives of this rank; further ones throw.
  void give_up(const std::string& reason) noexcept;

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;
  struct Running {
    ncclComm_t communicator;
    std::string what;
    SharedEvent ready, done;
    Clock::time_point since;  // when it began to wait for peers; zero before
  };

  // All of these need the mutex.
  void accept(Lock& lock, ncclResult_t status, const std::string& what);
  void settle(Lock& lock, ncclComm_t communicator, const std::string& what);
  void throw_if_failed() const;
  [[noreturn]] void fail(const std::string& reason);
  [[noreturn]] void fail_after_nccl(Lock& lock, const std::string& reason);
  void record_failure(const Error& error) noexcept;
  void forget_finished();
  std::optional<Error> find_broken() const;
  std::optional<Error> find_overdue();

  void watch();

  std::unique_ptr<Bootstrap> bootstrap_;
  int device_index_;
  std::chrono::seconds timeout_;
  cuda::Stream stream_, copy_stream_;
  cuda::PinnedStaging staging_;

  std::mutex mutex_;
  std::condition_variable ending_;
  bool ended_ = false;
  std::optional<Error> failure_;  // why the world is lost
  std::vector<ncclComm_t> communicators_;
  // Where NCCL's own thread writes a new communicator. That may be late: after this rank has given up, until the aborts
  // have returned, so they own it too.
  std::shared_ptr<ncclComm_t> being_made_;
  std::deque<Running> running_;  // in the order of the stream
  std::thread watchdog_;
};

}  // namespace ab
