// SPDX-License-Identifier: MIT
#include "engine/device/cuda/staging.h"

#include <algorithm>
#include <cstring>

#include "engine/device/cuda/runtime.h"

namespace ab::cuda {

PinnedStaging::PinnedStaging() {
  for (Slot& slot : slots_) {
    void* buffer = nullptr;
    AB_CUDA(cudaMallocHost(&buffer, kSlotBytes));
    slot.buffer.reset(buffer);
    slot.copied = make_event();
  }
}

void PinnedStaging::to_device(void* device, const void* host, std::size_t bytes, cudaStream_t stream) {
  for (std::size_t begin = 0; begin < bytes; begin += kSlotBytes) {
    const std::size_t size = std::min(kSlotBytes, bytes - begin);
    Slot& slot = slots_[next_++ % slots_.size()];
    AB_CUDA(cudaEventSynchronize(slot.copied.get()));
    std::memcpy(slot.buffer.get(), static_cast<const char*>(host) + begin, size);
    AB_CUDA(
        cudaMemcpyAsync(static_cast<char*>(device) + begin, slot.buffer.get(), size, cudaMemcpyHostToDevice, stream));
    AB_CUDA(cudaEventRecord(slot.copied.get(), stream));
  }
}

void PinnedStaging::to_host(void* host, const void* device, std::size_t bytes, cudaStream_t stream) {
  const std::size_t chunks = (bytes + kSlotBytes - 1) / kSlotBytes;
  const auto size_of_chunk = [&](std::size_t i) { return std::min(kSlotBytes, bytes - i * kSlotBytes); };
  for (std::size_t i = 0; i <= chunks; ++i) {
    if (i < chunks) {
      const Slot& slot = slots_[i % slots_.size()];
      AB_CUDA(cudaMemcpyAsync(slot.buffer.get(), static_cast<const char*>(device) + i * kSlotBytes, size_of_chunk(i),
                              cudaMemcpyDeviceToHost, stream));
      AB_CUDA(cudaEventRecord(slot.copied.get(), stream));
    }
    if (i > 0) {
      const Slot& slot = slots_[(i - 1) % slots_.size()];
      AB_CUDA(cudaEventSynchronize(slot.copied.get()));
      std::memcpy(static_cast<char*>(host) + (i - 1) * kSlotBytes, slot.buffer.get(), size_of_chunk(i - 1));
    }
  }
}

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
