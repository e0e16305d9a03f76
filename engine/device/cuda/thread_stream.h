#pragma once
// SPDX-License-Identifier: MIT
//
// The stream of a thread, for each GPU that it works on, and all that belongs to it, such as the buffers for copies
// to and from the host and a workspace. Ranks may be threads that share a GPU; nothing here is shared, so each rank's
// work runs in its own order and no rank waits for another.

#include <memory>
#include <utility>
#include <vector>

#include "engine/device/cuda/runtime.h"
#include "engine/device/cuda/staging.h"

namespace ab::cuda {

class CudaMemory;
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
  /// While it lives, the workspace is another, which goes with it: of algorithms that are only tried.
  class TrialWorkspace {
   public:
    explicit TrialWorkspace(ThreadStream& stream)
        : stream_(stream),
          set_aside_(std::move(stream.workspace_)),
          bytes_(std::exchange(stream.workspace_bytes_, 0)) {}
    ~TrialWorkspace() {
      stream_.workspace_ = std::move(set_aside_);
      stream_.workspace_bytes_ = bytes_;
    }
    TrialWorkspace(const TrialWorkspace&) = delete;
    TrialWorkspace& operator=(const TrialWorkspace&) = delete;

   private:
    ThreadStream& stream_;
    std::shared_ptr<void> set_aside_;
    std::size_t bytes_;
  };
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

/// A capture that is under way on the calling thread's stream (engine/device/graph.h). Until it ends the stream takes
/// no part in memory management: an allocation there would become a part of the graph, and blocks from before the
/// capture cannot be freed there. So blocks come from a stream beside it, and go when the capture has ended.
class StreamCapture {
 public:
  /// Begins. Other threads may go on allocating and copying on streams of theirs.
  explicit StreamCapture(ThreadStream& stream);
  /// Ends; what was captured is dropped, unless finish() has returned it.
  ~StreamCapture();
  StreamCapture(const StreamCapture&) = delete;
  StreamCapture& operator=(const StreamCapture&) = delete;

  /// Ends; what was captured.
  CapturedGraph finish();

  void* allocate(CudaMemory& memory, std::size_t bytes) const;
  void release_at_end(void* block, std::size_t bytes) { released_.push_back({block, bytes}); }

 private:
  struct Block {
    void* address;
    std::size_t bytes;
  };

  ThreadStream& stream_;
  Stream beside_;
  std::vector<Block> released_;
};

}  // namespace ab::cuda
