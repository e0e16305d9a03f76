// SPDX-License-Identifier: MIT
#include "engine/device/cuda/pinned_copy.h"

#include "engine/device/cuda/check.h"
#include "engine/device/cuda/handles.h"

namespace ab::cuda {
namespace {

class PinnedCopy final : public HostCopy {
 public:
  PinnedCopy(std::shared_ptr<PinnedSlots> slots, const void* from, std::size_t bytes, cudaStream_t stream)
      : slots_(std::move(slots)) {
    if (slots_->empty()) slots_->push_back(std::make_unique<PinnedSlot>());
    slot_ = std::move(slots_->back());
    slots_->pop_back();
    AB_CUDA(cudaMemcpyAsync(slot_->buffer.get(), from, bytes, cudaMemcpyDeviceToHost, stream));
    AB_CUDA(cudaEventRecord(slot_->copied.get(), stream));
  }
  // A copy that nobody waited for may still be under way: the next one through this slot follows it in the stream.
  ~PinnedCopy() override { slots_->push_back(std::move(slot_)); }

  const void* wait() override {
    AB_CUDA(cudaEventSynchronize(slot_->copied.get()));
    return slot_->buffer.get();
  }

 private:
  std::shared_ptr<PinnedSlots> slots_;
  std::unique_ptr<PinnedSlot> slot_;
};

}  // namespace

PinnedSlot::PinnedSlot() : copied(make_event()) {
  void* memory = nullptr;
  AB_CUDA(cudaMallocHost(&memory, kHostCopyBytes));
  buffer.reset(memory);
}

std::unique_ptr<HostCopy> start_pinned_copy(const std::shared_ptr<PinnedSlots>& slots, const void* from,
                                            std::size_t bytes, cudaStream_t stream) {
  return std::make_unique<PinnedCopy>(slots, from, bytes, stream);
}

}  // namespace ab::cuda
