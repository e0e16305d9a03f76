// SPDX-License-Identifier: MIT
#include "engine/device/emulated_gpu/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "engine/device/device.h"
#include "engine/device/emulated_gpu/capture.h"

namespace ab::emulated_gpu {
namespace {

constexpr std::size_t kAlignment = 256;  // as cudaMalloc
constexpr int kPoison = 0xff;            // NaN in every floating-point type, -1 in int64

std::size_t round_up(std::size_t bytes) {
  return std::max((bytes + kAlignment - 1) / kAlignment, std::size_t{1}) * kAlignment;
}

}  // namespace

Arena::Arena(int device_index) : device_{DeviceKind::cuda, device_index} {
  const int file = memfd_create("emulated_gpu", MFD_CLOEXEC);
  const bool has_pages = file >= 0 && ftruncate(file, static_cast<off_t>(kArenaBytes)) == 0;
  const auto map = [&](int rights) { return mmap(nullptr, kArenaBytes, rights, MAP_SHARED | MAP_NORESERVE, file, 0); };
  void* const base = map(PROT_NONE);
  void* const backdoor = map(PROT_READ | PROT_WRITE);
  AB_CHECK_KIND(communication, has_pages && base != MAP_FAILED && backdoor != MAP_FAILED,
                "cannot reserve {} bytes of addresses for the emulated GPU {}: {}", kArenaBytes, device_index,
                std::strerror(errno));
  ::close(file);  // the mappings keep it
  if (const char* const limit = std::getenv("AB_EMULATED_GPU_BYTES")) limit_ = std::atoll(limit);
  base_ = static_cast<std::byte*>(base);
  backdoor_ = static_cast<std::byte*>(backdoor);
}

void* Arena::allocate(std::size_t bytes) {
  const std::size_t size = round_up(bytes);
  const std::lock_guard lock(mutex_);
  if (stats_.live_bytes + static_cast<std::int64_t>(size) > limit_)
    throw_out_of_memory(device_.index, stats_.live_bytes, bytes);
  void* const block = base_ + take_free_range(size);
  stats_.live_bytes += static_cast<std::int64_t>(size);
  stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
  std::memset(behind(block), kPoison, size);
  return block;
}

std::size_t Arena::take_free_range(std::size_t bytes) {
  const auto found = std::find_if(free_.begin(), free_.end(), [bytes](const auto& f) { return f.second >= bytes; });
  if (found == free_.end()) {
    if (bytes > kArenaBytes - used_) throw_out_of_memory(device_.index, stats_.live_bytes, bytes);
    used_ += bytes;
    if (users_ > 0 && !watch_) protect(PROT_READ | PROT_WRITE);
    return used_ - bytes;
  }
  const auto [offset, size] = *found;
  free_.erase(found);
  if (size > bytes) free_[offset + bytes] = size - bytes;
  return offset;
}

void Arena::release(void* block, std::size_t bytes) {
  std::size_t size = round_up(bytes);
  const std::lock_guard lock(mutex_);
  std::memset(behind(block), kPoison, size);
  stats_.live_bytes -= static_cast<std::int64_t>(size);
  const auto offset = static_cast<std::size_t>(static_cast<std::byte*>(block) - base_);
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + size) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += size;
      return;
    }
  }
  free_[offset] = size;
}

void Arena::set_zero(void* block, std::size_t bytes) {
  if (capturing(device_)) return capture([=, this] { set_zero(block, bytes); });
  ++issued_;
  if (watch_) watch_->moved("zero", 0, bytes);
  std::memset(behind(block), 0, bytes);
}

void Arena::copy(void* to, const void* from, std::size_t bytes) {
  if (capturing(device_)) return capture([=, this] { copy(to, from, bytes); });
  ++issued_;
  if (watch_) watch_->moved("copy", bytes, bytes);
  std::memcpy(behind(to), behind(from), bytes);
}

void Arena::copy_from_host(void* to, const void* host, std::size_t bytes) {
  refuse_in_capture("a copy from host memory");
  ++issued_;
  if (bytes > 0) std::memcpy(behind(to), host, bytes);
}

void Arena::copy_to_host(void* host, const void* from, std::size_t bytes) {
  refuse_in_capture("a copy to host memory");
  count_host_wait();
  read(host, from, bytes);
}

void Arena::read(void* host, const void* from, std::size_t bytes) const {
  if (bytes > 0) std::memcpy(host, behind(from), bytes);
}

namespace {

/// Copies at once, as the work before it is done, and shows the values to nobody who has not waited.
class StartedCopy final : public HostCopy {
 public:
  StartedCopy(Arena& arena, const void* from, std::size_t bytes) : arena_(arena), issued_(arena.issued()) {
    arena.read(values_.data(), from, bytes);
  }
  const void* wait() override {
    if (arena_.issued() == issued_) arena_.count_host_wait();
    return values_.data();
  }

 private:
  Arena& arena_;
  std::int64_t issued_;  // when this was started
  alignas(std::max_align_t) std::array<std::byte, kHostCopyBytes> values_;
};

}  // namespace

std::unique_ptr<HostCopy> Arena::start_copy_to_host(const void* from, std::size_t bytes) {
  refuse_in_capture("a copy to host memory");
  return std::make_unique<StartedCopy>(*this, from, bytes);
}

MemoryStats Arena::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void Arena::restart_peak() {
  const std::lock_guard lock(mutex_);
  stats_.peak_bytes = stats_.live_bytes;
}

void Arena::set_limit(std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  limit_ = bytes;
}

std::int64_t Arena::limit() const {
  const std::lock_guard lock(mutex_);
  return limit_;
}

void Arena::open(const char* kernel) {
  ++issued_;
  const std::lock_guard lock(mutex_);
  if (users_++ > 0) return;
  if (watch_) watch_->kernel_begins(kernel, base_, used_);
  else protect(PROT_READ | PROT_WRITE);
}

void Arena::close() {
  const std::lock_guard lock(mutex_);
  if (--users_ > 0) return;
  protect(PROT_NONE);
  if (watch_) watch_->kernel_ends();
}

std::byte* Arena::behind(const void* block) const {
  const std::less<const void*> before;
  AB_ASSERT(!before(block, base_) && before(block, base_ + kArenaBytes));
  return backdoor_ + (static_cast<const std::byte*>(block) - base_);
}

/// Needs the mutex.
void Arena::protect(int rights) {
  if (used_ > 0) AB_ASSERT(mprotect(base_, (used_ + 4095) / 4096 * 4096, rights) == 0);
}

Arena& arena(int device_index) {
  // Leaked on purpose: tensors with static storage may outlive any destructor order we could choose.
  static const auto& arenas = *[] {
    auto* list = new std::vector<std::unique_ptr<Arena>>;
    for (int i = 0; i < cuda_device_count(); ++i) list->push_back(std::make_unique<Arena>(i));
    return list;
  }();
  check_cuda_device(device_index);
  return *arenas[static_cast<std::size_t>(device_index)];
}

}  // namespace ab::emulated_gpu
