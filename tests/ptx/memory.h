#pragma once
// SPDX-License-Identifier: MIT
//
// Device memory, and what is known of its bytes. It is host memory, under addresses at which a processor finds nothing:
// host code that touches device memory dies at that line. All of it needs the device's mutex; the functions that take
// pointers lock it themselves.

#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>

#include "tests/ptx/program.h"

namespace ptx {

/// A thread at some time: how many barriers its block had passed.
struct Toucher {
  std::uint32_t launch = 0, block = 0;
  std::uint16_t phase = 0, thread = 0;
};

/// Of a byte; all zero for one that nobody has written.
struct ByteState {
  Toucher written, read;
  bool read_by_threads, read_by_blocks;  // by more than `read`, since then in its phase or its launch
  bool is_defined;
};

/// What is wrong with reading or writing these bytes without a barrier since others did, or null; notes the access.
/// Blocks of a launch have barriers of their own, and none between them.
const char* find_race(ByteState* bytes, std::size_t count, const Toucher& who, bool writes);

struct FreeMemory {
  void operator()(void* p) const { std::free(p); }
};

/// Where the bytes of device memory really are.
inline constexpr std::uint64_t kDeviceAddresses = std::uint64_t{1} << 60;
template <class T> T* on_host(T* device) {
  return reinterpret_cast<T*>(reinterpret_cast<std::uint64_t>(device) - kDeviceAddresses);
}

class Allocation {
 public:
  Allocation(std::size_t bytes, void* existing);  // null: memory of its own

  std::uint64_t begin() const { return begin_; }
  std::uint64_t end() const { return begin_ + bytes_; }
  std::size_t bytes() const { return bytes_; }
  ByteState* state(std::uint64_t address) { return states_.get() + (address - begin_); }
  bool is_constant() const { return !memory_; }
  std::uint8_t* bytes_at(std::uint64_t address) const { return reinterpret_cast<std::uint8_t*>(address - shift_); }
  void forget();  // it is as new

 private:
  std::size_t bytes_;
  std::unique_ptr<void, FreeMemory> memory_;
  std::uint64_t shift_, begin_;
  std::unique_ptr<ByteState, FreeMemory> states_;
};

class DeviceMemory {
 public:
  void* allocate(std::size_t bytes);  // null when there is not enough
  /// It serves again for its own size only, so that a pool which is never trimmed is noticed.
  void release(void* block);
  void trim();
  void add_constants(std::vector<std::uint8_t>& array);
  /// The allocation in which an address is, or null.
  Allocation* find(std::uint64_t address);
  std::size_t total() const;
  std::size_t taken() const { return taken_; }

 private:
  std::map<std::uint64_t, std::unique_ptr<Allocation>> live_;
  std::multimap<std::size_t, std::unique_ptr<Allocation>> pool_;
  std::size_t taken_ = 0;
};
DeviceMemory& device_memory();

/// Whether these bytes lie in one allocation; reported if not.
bool is_on_device(const void* at, std::size_t bytes, const char* call);
/// For what copies and libraries do with bytes on the device.
void set_defined(const void* at, std::size_t bytes);
bool is_defined(const void* at, std::size_t bytes);
void copy_definedness(void* to, const void* from, std::size_t bytes);
/// A library may leave anything in its workspace.
void use_workspace(void* at, std::size_t bytes, const char* call);

}  // namespace ptx
