#pragma once
// SPDX-License-Identifier: MIT
//
// The stream of a thread, for each GPU that it works on, and all that belongs to it, such as the buffers for copies
// to and from the host and a workspace. Ranks may be threads that share a GPU; nothing here is shared, so each rank's
// work runs in its own order and no rank waits for another.

#include <memory>

#include "engine/device/cuda/runtime.h"
#include "engine/device/cuda/staging.h"

namespace ab::cuda {

class StreamCapture;

class ThreadStream {
 public:
  /// The calling thread's, made at first use; the device becomes the thread's current one.
  static ThreadStream& current(int device_index);
  /// The same where there is one; null once the thread is ending. For destructors: does not throw.
  static ThreadStream* current_if_alive(int device_index) noexcept;

  ~ThreadStream();
  ThreadStream(const ThreadStream&) = delete;
  ThreadStream& operator=(const ThreadStream&) = delete;

  int device_index() const { return device_index_; }
  int multiprocessors() const { return multiprocessors_; }
  cudaStream_t handle() const { return stream_.get(); }

  // Made at first use.
  PinnedStaging& staging();
  const std::shared_ptr<PinnedSlots>& pinned_slots();

  /// At least `bytes` bytes of device memory, valid for work issued before the next call of workspace().
  void* workspace(std::size_t bytes);
  /// Keeps the present workspace at its address, for a graph that uses it.
  std::shared_ptr<void> share_workspace() const { return workspace_; }

  /// The capture that is under way on the stream, or null.
  StreamCapture* capture() const { return capture_; }
  void set_capture(StreamCapture* capture) { capture_ = capture; }
  /// Throws Bug that names `what` while there is one: the driver would give up the capture.
  void refuse_in_capture(const char* what) const;

 private:
  explicit ThreadStream(int device_index);

  int device_index_;
  int multiprocessors_ = 0;
  Stream stream_;
  std::unique_ptr<PinnedStaging> staging_;
  std::shared_ptr<PinnedSlots> pinned_slots_;
  StreamCapture* capture_ = nullptr;
  std::shared_ptr<void> workspace_;
  std::size_t workspace_bytes_ = 0;
};

}  // namespace ab::cuda
