#pragma once
// SPDX-License-Identifier: MIT
//
// The common part of a rank's NCCL communicators: a GPU, the stream that all their collectives run on, and
// how they end when something fails. NCCL's calls do not block (config.blocking = 0), so that this rank can always
// give up; a watchdog thread looks after collectives that the GPU works on while the rank's own thread computes.

#include <nccl.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "engine/comm/patience.h"
#include "engine/comm/texts.h"
#include "engine/device/cuda/runtime.h"
#include "engine/device/cuda/staging.h"
#include "engine/device/device.h"

namespace ab {

static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 18, 0), "groups need ncclCommSplit, which came with NCCL 2.18");

inline constexpr std::chrono::milliseconds kWatchInterval{50};
inline constexpr std::chrono::seconds kAbortTime{10};  // NCCL's own limit for giving up is longer, if it has one
// How long a rank whose connections break waits to hear which rank has failed, and why: until that one has given up.
inline constexpr std::chrono::seconds kExplanationTime = kAbortTime + std::chrono::seconds(2);

inline cuda::Stream make_stream_on(int device_index) {
  check_cuda_device(device_index);
  AB_CUDA(cudaSetDevice(device_index));
  return cuda::make_stream();
}

inline std::string describe(ncclResult_t status, ncclComm_t communicator) {
  const char* detail = ncclGetLastError(communicator);
  return fmt::format("NCCL: {}{}{}", ncclGetErrorString(status), detail && *detail ? ": " : "", detail ? detail : "");
}

/// Throws Error(communication) with NCCL's own words. ncclInProgress is no failure.
inline void check_nccl(ncclResult_t status, const char* call) {
  if (status == ncclSuccess || status == ncclInProgress) return;
  throw Error(ErrorKind::communication, fmt::format("{}, in {}", describe(status, nullptr), call));
}
#define AB_NCCL(call) ::ab::check_nccl((call), #call)

/// An event that its recorder, the watchdog and a request hold together.
using SharedEvent = std::shared_ptr<std::remove_pointer_t<cudaEvent_t>>;
inline SharedEvent record_event(cudaStream_t stream) {
  SharedEvent event = cuda::make_event();
  AB_CUDA(cudaEventRecord(event.get(), stream));
  return event;
}
inline bool has_happened(const SharedEvent& event) {
  const cudaError_t status = cudaEventQuery(event.get());
  if (status == cudaErrorNotReady) {
    (void)cudaGetLastError();  // no failure, and no launch that comes after is to be blamed for it
    return false;
  }
  AB_CUDA(status);
  return true;
}

class NcclWorld {
 public:
  NcclWorld(std::unique_ptr<Bootstrap> bootstrap, int device_index, std::chrono::seconds timeout)
      : bootstrap_(std::move(bootstrap)),
        device_index_(device_index),
        timeout_(timeout),
        stream_(make_stream_on(device_index)),
        copy_stream_(make_stream_on(device_index)),
        watchdog_([this] { watch(); }) {}

  /// All communicators have been destroyed before.
  ~NcclWorld() {
    {
      const Lock lock(mutex_);
      ended_ = true;
    }
    ending_.notify_all();
    watchdog_.join();
    (void)cudaStreamSynchronize(copy_stream_.get());  // which may still read staging_, where a collective has failed
  }

  NcclWorld(const NcclWorld&) = delete;
  NcclWorld& operator=(const NcclWorld&) = delete;

  Bootstrap& bootstrap() { return *bootstrap_; }
  int device_index() const { return device_index_; }
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
  void destroy(ncclComm_t communicator, bool leave_alone) noexcept {
    try {
      Lock lock(mutex_);
      const auto is_running = [&] {
        return std::any_of(running_.begin(), running_.end(),
                           [&](const Running& r) { return r.communicator == communicator; });
      };
      if (leave_alone && !failure_) fail("this rank left before its peers");
      for (forget_finished(); !failure_ && is_running(); forget_finished())
        ending_.wait_for(lock, std::chrono::milliseconds(1));
      throw_if_failed();
      accept(lock, ncclCommFinalize(communicator), "the end of a group");
      settle(lock, communicator, "the end of a group");
      std::erase(communicators_, communicator);
      AB_NCCL(ncclCommDestroy(communicator));
    } catch (const std::exception&) {  // it has been aborted together with all others
    }
  }

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
  void give_up(const std::string& reason) noexcept {
    const Lock lock(mutex_);
    if (!failure_) record_failure(Error(ErrorKind::communication, reason));
  }

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;
  struct Running {
    ncclComm_t communicator;
    std::string what;
    SharedEvent ready, done;
    std::optional<Patience> waiting;  // for peers, once it does
  };

  // All of these need the mutex.
  void accept(Lock& lock, ncclResult_t status, const std::string& what) {
    if (status != ncclSuccess && status != ncclInProgress)
      fail_after_nccl(lock,
                      fmt::format("{} failed on rank {}: {}", what, bootstrap_->rank(), describe(status, nullptr)));
  }

  /// Waits until NCCL has taken what it was given: it connects peers and launches kernels on a thread of its own.
  void settle(Lock& lock, ncclComm_t communicator, const std::string& what) {
    Patience patience(timeout_);
    constexpr int kEagerPolls = 2000;
    for (int polls = 0;; ++polls) {
      throw_if_failed();
      ncclResult_t state = ncclSuccess;
      AB_NCCL(ncclCommGetAsyncError(communicator, &state));
      if (state == ncclSuccess) return;
      if (state != ncclInProgress)
        fail_after_nccl(
            lock, fmt::format("{} failed on rank {}: {}", what, bootstrap_->rank(), describe(state, communicator)));
      if (patience.is_over())
        fail(fmt::format(
            "{} could not begin within {} s on rank {}: a rank of the group has ended or does something else", what,
            timeout_.count(), bootstrap_->rank()));
      lock.unlock();
      if (polls < kEagerPolls) std::this_thread::yield();
      else std::this_thread::sleep_for(std::chrono::microseconds(100));
      lock.lock();
    }
  }

  void throw_if_failed() const {
    if (failure_) throw Error(*failure_);
  }
  [[noreturn]] void fail(const std::string& reason) {
    record_failure(Error(ErrorKind::communication, reason));
    throw Error(*failure_);
  }
  /// NCCL knows that a connection broke. The rank at its other end may be about to say why.
  [[noreturn]] void fail_after_nccl(Lock& lock, const std::string& reason) {
    if (bootstrap_->reports_failures())
      ending_.wait_for(lock, kExplanationTime, [this] { return failure_.has_value(); });
    throw_if_failed();
    fail(reason);
  }

  /// Aborts every communicator at once: the end of one may wait for kernels that only the abort of another ends. Each
  /// abort has a thread, and nobody waits for one that hangs.
  void record_failure(const Error& error) noexcept {
    failure_ = error;
    ending_.notify_all();
    running_.clear();
    std::vector<std::future<void>> aborts;
    for (const ncclComm_t communicator : std::exchange(communicators_, {})) {
      std::packaged_task<void()> abort([communicator, device = device_index_, still_written = being_made_] {
        (void)cudaSetDevice(device);
        (void)ncclCommAbort(communicator);
      });
      aborts.push_back(abort.get_future());
      std::thread(std::move(abort)).detach();
    }
    const auto deadline = Clock::now() + kAbortTime;
    for (const std::future<void>& abort : aborts) abort.wait_until(deadline);
  }

  void forget_finished() {
    while (!running_.empty() && has_happened(running_.front().done)) running_.pop_front();
  }

  /// A communicator that has lost a peer.
  std::optional<Error> find_broken() const try {
    for (const ncclComm_t communicator : communicators_) {
      ncclResult_t state = ncclSuccess;
      AB_NCCL(ncclCommGetAsyncError(communicator, &state));
      if (state != ncclSuccess && state != ncclInProgress)
        return Error(ErrorKind::communication,
                     fmt::format("rank {} lost its peers: {}", bootstrap_->rank(), describe(state, communicator)));
    }
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  }
  /// A collective that has waited for its peers for too long.
  std::optional<Error> find_overdue() try {
    forget_finished();
    if (running_.empty()) return std::nullopt;
    // Collectives run one after the other: the first is the one that waits, once the computation before it is done.
    Running& first = running_.front();
    if (!first.waiting && has_happened(first.ready)) first.waiting.emplace(timeout_);
    if (!first.waiting || !first.waiting->is_over()) return std::nullopt;
    return Error(ErrorKind::communication,
                 fmt::format("{} waited {} s on rank {}: a rank of the group has ended or does something else",
                             first.what, timeout_.count(), bootstrap_->rank()));
  } catch (const Error& error) {
    return error;
  }

  void watch() {
    (void)cudaSetDevice(device_index_);  // which the constructor's thread has done before, successfully
    std::optional<Error> broken;
    Clock::time_point explained_by;
    Lock lock(mutex_);
    while (!failure_ && !ended_) {
      ending_.wait_for(lock, kWatchInterval);
      lock.unlock();
      std::optional<Error> error = bootstrap_->failure();
      lock.lock();
      if (failure_) return;
      if (!error) error = find_overdue();
      if (!error && !broken && (broken = find_broken()))
        explained_by = Clock::now() + (bootstrap_->reports_failures() ? kExplanationTime : std::chrono::seconds(0));
      if (!error && broken && Clock::now() >= explained_by) error = broken;
      if (error) record_failure(*error);
    }
  }

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
