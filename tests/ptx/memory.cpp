// SPDX-License-Identifier: MIT
#include "tests/ptx/memory.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>

#include "tests/ptx/faults.h"

namespace ptx {
namespace {

constexpr std::size_t kAlignment = 512;  // as CUDA's

std::uint64_t address_of(const void* at) { return reinterpret_cast<std::uint64_t>(at); }

}  // namespace

const char* find_race(ByteState* bytes, std::size_t count, const Toucher& who, bool writes) {
  const auto together = [&](const Toucher& other) {  // no barrier is between them
    return other.launch == who.launch &&
           (other.block != who.block || (other.phase == who.phase && other.thread != who.thread));
  };
  for (ByteState* b = bytes; b != bytes + count; ++b) {
    if (together(b->written)) return writes ? "two threads write" : "reads what another thread writes in";
    const bool in_launch = b->read.launch == who.launch;
    const bool in_phase = in_launch && b->read.block == who.block && b->read.phase == who.phase;
    if (writes) {
      if (together(b->read) || (in_launch && b->read_by_blocks) || (in_phase && b->read_by_threads))
        return "writes what another thread reads in";
      b->written = who;
      continue;
    }
    b->read_by_blocks = in_launch && (b->read_by_blocks || b->read.block != who.block);
    b->read_by_threads = in_phase && (b->read_by_threads || b->read.thread != who.thread);
    b->read = who;
  }
  return nullptr;
}

Allocation::Allocation(std::size_t bytes, void* existing)
    : bytes_(bytes),
      memory_(existing ? nullptr : std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment)),
      shift_(existing ? 0 : kDeviceAddresses),
      begin_(address_of(existing ? existing : memory_.get()) + shift_) {
  forget();
}

void Allocation::forget() {
  constexpr std::size_t kLarge = 1 << 20;  // where fresh pages, which cost nothing until they are touched, are cheaper
  if (states_ && bytes_ < kLarge) std::memset(static_cast<void*>(states_.get()), 0, bytes_ * sizeof(ByteState));
  else states_.reset(static_cast<ByteState*>(std::calloc(bytes_, sizeof(ByteState))));
  if (memory_) std::memset(memory_.get(), 0xff, bytes_);  // NaN
  else std::for_each(states_.get(), states_.get() + bytes_, [](ByteState& b) { b.is_defined = true; });
}

std::size_t DeviceMemory::total() const { return setting("PTX_BYTES", std::size_t{1} << 34); }

void* DeviceMemory::allocate(std::size_t bytes) {
  std::unique_ptr<Allocation> made;
  if (const auto kept = pool_.find(bytes); kept != pool_.end()) {
    made = std::move(kept->second);
    pool_.erase(kept);
    made->forget();
  } else {
    if (bytes > total() || taken_ + bytes > total()) return nullptr;
    made = std::make_unique<Allocation>(bytes, nullptr);
    taken_ += bytes;
  }
  void* const at = reinterpret_cast<void*>(made->begin());
  live_[made->begin()] = std::move(made);
  return at;
}

void DeviceMemory::release(void* block) {
  const auto it = live_.find(address_of(block));
  if (it == live_.end()) return report("device memory is freed that is not allocated");
  pool_.emplace(it->second->bytes(), std::move(it->second));
  live_.erase(it);
}

void DeviceMemory::trim() {
  for (const auto& [bytes, allocation] : pool_) taken_ -= bytes;
  pool_.clear();
}

void DeviceMemory::add_constants(std::vector<std::uint8_t>& array) {
  auto constants = std::make_unique<Allocation>(array.size(), array.data());
  live_[constants->begin()] = std::move(constants);
}

Allocation* DeviceMemory::find(std::uint64_t address) {
  const auto behind = live_.upper_bound(address);
  if (behind == live_.begin()) return nullptr;
  Allocation* const allocation = std::prev(behind)->second.get();
  return address < allocation->end() ? allocation : nullptr;
}

DeviceMemory& device_memory() {
  static auto& memory = *new DeviceMemory;
  return memory;
}

bool is_on_device(const void* at, std::size_t bytes, const char* call) {
  if (bytes == 0) return true;
  const std::lock_guard lock(device_mutex());
  const Allocation* allocation = device_memory().find(address_of(at));
  if (allocation && address_of(at) + bytes <= allocation->end()) return true;
  report(std::string(call) + ": memory that is not the device's, is freed, or is behind the end of an allocation");
  return false;
}

void set_defined(const void* at, std::size_t bytes) {
  const std::lock_guard lock(device_mutex());
  ByteState* const first = device_memory().find(address_of(at))->state(address_of(at));
  std::for_each(first, first + bytes, [](ByteState& b) { b = {}, b.is_defined = true; });
}

bool is_defined(const void* at, std::size_t bytes) {
  const std::lock_guard lock(device_mutex());
  const ByteState* const first = device_memory().find(address_of(at))->state(address_of(at));
  return std::all_of(first, first + bytes, [](const ByteState& b) { return b.is_defined; });
}

void copy_definedness(void* to, const void* from, std::size_t bytes) {
  const std::lock_guard lock(device_mutex());
  ByteState* const target = device_memory().find(address_of(to))->state(address_of(to));
  const ByteState* const source = device_memory().find(address_of(from))->state(address_of(from));
  for (std::size_t k = 0; k < bytes; ++k) {
    const bool is_defined = source[k].is_defined;
    target[k] = {}, target[k].is_defined = is_defined;
  }
}

void use_workspace(void* at, std::size_t bytes, const char* call) {
  if (bytes == 0 || !is_on_device(at, bytes, call)) return;
  const std::lock_guard lock(device_mutex());
  std::memset(on_host(at), 0xff, bytes);
  std::memset(static_cast<void*>(device_memory().find(address_of(at))->state(address_of(at))), 0,
              bytes * sizeof(ByteState));
}

}  // namespace ptx
