// SPDX-License-Identifier: MIT
#include "engine/backend/cpu/scratch.h"

#include "engine/core/memory.h"

namespace ab::cpu {
namespace {

class Scratch {
 public:
  Scratch() = default;
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { release(); }

  std::byte* at_least(std::size_t bytes) {
    if (bytes > bytes_) {
      release();
      data_ = static_cast<std::byte*>(memory(Device{}).allocate(bytes));
      bytes_ = bytes;
    }
    return data_;
  }

 private:
  void release() {
    if (data_) memory(Device{}).release(data_, bytes_);
    data_ = nullptr;
    bytes_ = 0;
  }

  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace

std::byte* scratch(std::size_t bytes) {
  thread_local Scratch buffer;
  return buffer.at_least(bytes);
}

}  // namespace ab::cpu
