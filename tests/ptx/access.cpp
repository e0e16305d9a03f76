// SPDX-License-Identifier: MIT
//
// Loads and stores, and what may be wrong with them.
#include <algorithm>
#include <cstring>

#include "tests/ptx/faults.h"
#include "tests/ptx/launch.h"

namespace ptx {
namespace {

Slot element(const Instruction& i, const std::uint8_t* from) {
  Slot value = 0;
  std::memcpy(&value, from, i.bytes);
  const int unused = 64 - 8 * i.bytes;
  if (!i.is_signed) return value;
  return static_cast<Slot>(static_cast<std::int64_t>(value << unused) >> unused);
}

const char* verb(bool writes) { return writes ? "writes" : "reads"; }

}  // namespace

void Launch::fault(const Instruction& i, const std::string& what, const std::string& details) {
  const std::string where = function_.file + ":" + std::to_string(i.line);
  report(what + ", at " + where + " in " + function_.name, ", block " + std::to_string(current_.block) + ", thread " +
                                                               std::to_string(current_.thread) + " of " +
                                                               std::to_string(count_) + details);
}

void Launch::load(const Instruction& i, Slot* slots) {
  const std::uint8_t* from = nullptr;
  if (i.space == Space::argument) {
    slots[i.elements[0]] = slots[i.from[0]];
    return;
  }
  if (i.space == Space::parameter) {
    const std::size_t bytes = std::size_t{i.bytes} * i.count,
                      offset = slots[i.from[0]] + static_cast<std::size_t>(i.offset);
    if (offset + bytes > function_.parameter_bytes) return fault(i, "reads behind the parameters");
    if (offset % bytes != 0) return fault(i, "reads a parameter at a misaligned address");
    from = parameters_ + offset;
  } else {
    from = locate(i, slots, false);
  }
  for (int k = 0; k < i.count; ++k) slots[i.elements[k]] = from ? element(i, from + k * i.bytes) : 0;
}

void Launch::store(const Instruction& i, Slot* slots) {
  if (i.space == Space::argument) {
    slots[i.from[0]] = slots[i.elements[0]];
    return;
  }
  std::uint8_t* const to = locate(i, slots, true);
  for (int k = 0; to && k < i.count; ++k) std::memcpy(to + k * i.bytes, &slots[i.elements[k]], i.bytes);
}

std::uint8_t* Launch::locate(const Instruction& i, const Slot* slots, bool writes) {
  const std::size_t bytes = std::size_t{i.bytes} * i.count;
  const bool is_shared = i.space == Space::shared;
  std::uint64_t address = slots[i.from[0]] + static_cast<std::uint64_t>(i.offset);
  if (is_shared) address &= 0xffffffff;
  if (address % bytes != 0) {
    fault(i, std::string(verb(writes)) + (is_shared ? " shared memory" : "") + " at a misaligned address",
          ": " + std::to_string(bytes) + " bytes at …" + std::to_string(address % 256));
    return nullptr;
  }
  if (is_shared) return locate_shared(i, address, bytes, writes);
  const auto local = reinterpret_cast<std::uint64_t>(local_.data()) + current_.thread * local_stride_;
  if (address >= local && address + bytes <= local + local_stride_) return reinterpret_cast<std::uint8_t*>(address);
  if (i.space != Space::local) return locate_global(i, address, bytes, writes);
  fault(i, std::string(verb(writes)) + " outside the thread's local memory");
  return nullptr;
}

std::uint8_t* Launch::locate_shared(const Instruction& i, std::uint64_t address, std::size_t bytes, bool writes) {
  if (address + bytes > function_.shared_bytes) {
    fault(i, std::string(verb(writes)) + " behind the end of shared memory");
    return nullptr;
  }
  check(i, &shared_states_[address], bytes, writes, "shared");
  return &shared_[address];
}

std::uint8_t* Launch::locate_global(const Instruction& i, std::uint64_t address, std::size_t bytes, bool writes) {
  Allocation*& allocation = last_used_[static_cast<std::size_t>(&i - function_.code.data())];
  if (!allocation || address < allocation->begin() || address >= allocation->end())
    allocation = device_memory().find(address);
  if (!allocation || (writes && allocation->is_constant())) {
    fault(i, std::string(verb(writes)) + " memory that is not the device's, or is freed");
    return nullptr;
  }
  if (address + bytes > allocation->end()) {
    fault(i, std::string(verb(writes)) + " across the end of an allocation",
          ", of " + std::to_string(allocation->bytes()) + " bytes");
    return nullptr;
  }
  check(i, allocation->state(address), bytes, writes, "device");
  return allocation->bytes_at(address);
}

/// For races and for what nobody has written; the access happens all the same.
void Launch::check(const Instruction& i, ByteState* bytes, std::size_t count, bool writes, const char* memory) {
  if (const char* race = find_race(bytes, count, current_, writes))
    fault(i, std::string(race) + " one place of " + memory + " memory without a barrier between");
  if (!writes && !std::all_of(bytes, bytes + count, [](const ByteState& b) { return b.is_defined; }))
    fault(i, std::string("reads ") + memory + " memory that nobody has written");
  for (std::size_t k = 0; writes && k < count; ++k) bytes[k].is_defined = true;
}

}  // namespace ptx
