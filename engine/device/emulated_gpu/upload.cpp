// SPDX-License-Identifier: MIT
//
// Copies that take place as late as a GPU could make them: in acquire(), from what the host memory holds by then. Who
// writes to it after start(), reads the block before acquire() or after release(), or leaves out a step, gets wrong
// values or a Bug.
#include <utility>
#include <vector>

#include "engine/device/emulated_gpu/arena.h"
#include "engine/device/upload.h"

namespace ab {
namespace {

class EmulatedUploadSlot final : public UploadSlot {
 public:
  EmulatedUploadSlot(int device_index, std::size_t bytes)
      : block_({static_cast<std::int64_t>(bytes)}, DType::uint8, {DeviceKind::cuda, device_index}) {}

  std::byte* host() override {
    move_on(State::released, State::filling);
    host_ = std::vector<std::byte>(block_.bytes());  // elsewhere each time: an address from before start() is invalid
    return host_.data();
  }
  void start(std::size_t bytes) override {
    move_on(State::filling, State::under_way);
    AB_ASSERT(bytes <= host_.size());
    bytes_under_way_ = bytes;
  }
  const Tensor& acquire() override {
    move_on(State::under_way, State::acquired);
    emulated_gpu::arena(block_.device().index).copy_from_host(block_.raw(), host_.data(), bytes_under_way_);
    return block_;
  }
  void release() override {
    move_on(State::acquired, State::released);
    const std::vector<std::byte> gone(block_.bytes(), std::byte{0xff});
    emulated_gpu::arena(block_.device().index).copy_from_host(block_.raw(), gone.data(), gone.size());
  }

 private:
  enum class State { released, filling, under_way, acquired };

  void move_on(State from, State to) { AB_ASSERT(std::exchange(state_, to) == from); }

  Tensor block_;
  std::vector<std::byte> host_;
  std::size_t bytes_under_way_ = 0;
  State state_ = State::released;
};

}  // namespace

std::unique_ptr<UploadSlot> cuda_upload_slot(int device_index, std::size_t bytes) {
  return std::make_unique<EmulatedUploadSlot>(device_index, bytes);
}

}  // namespace ab
