// SPDX-License-Identifier: MIT
//
// Shuffles: the lanes of a warp exchange a register.
#include "tests/ptx/launch.h"

namespace ptx {
namespace {

constexpr int kLanes = 32;

/// The lane that a lane reads, or -1; by the PTX ISA. `clamp`: in bits 8 to 12 the mask of a segment.
int source_lane(Shuffle kind, int lane, int distance, int clamp) {
  const int segment = clamp >> 8 & 31, least = lane & segment, most = least | (clamp & 31 & ~segment);
  switch (kind) {
    case Shuffle::butterfly: lane ^= distance; break;
    case Shuffle::index: lane = least | (distance & ~segment); break;
    case Shuffle::down: lane += distance; break;
    case Shuffle::up: return lane - distance >= most ? lane - distance : -1;
  }
  return lane <= most ? lane : -1;
}

}  // namespace

/// Whether the lanes of a shuffle had all come, and have exchanged.
bool Launch::pass_shuffle(int begin) {
  for (int first = begin; first < std::min(begin + kLanes, count_); ++first) {
    if (thread(first).state != Thread::State::at_shuffle) continue;
    const Instruction& i = next_of(first);
    const auto mask = static_cast<std::uint32_t>(thread(first).slots[i.from[3]]);
    current_.thread = static_cast<std::uint16_t>(first);
    if (!all_lanes_wait(i, first, mask)) continue;
    exchange(i, begin, mask);
    return true;
  }
  return false;
}

bool Launch::all_lanes_wait(const Instruction& i, int first, std::uint32_t mask) {
  const int begin = first / kLanes * kLanes;
  if (!(mask >> (first - begin) & 1)) fault(i, "a lane that shuffles is not in the mask");
  bool all_wait = true;
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!(mask >> lane & 1)) continue;
    const int t = begin + lane;
    if (t >= count_) fault(i, "the mask of a shuffle names lanes that the block does not have");
    else if (thread(t).state == Thread::State::ended) fault(i, "the mask of a shuffle names lanes that have ended");
    else all_wait &= thread(t).state == Thread::State::at_shuffle && thread(t).next == thread(first).next;
  }
  return all_wait;
}

void Launch::exchange(const Instruction& i, int begin, std::uint32_t mask) {
  Slot values[kLanes] = {};
  for (int lane = 0; lane < kLanes && begin + lane < count_; ++lane)
    values[lane] = thread(begin + lane).slots[i.from[0]];
  for (int lane = 0; lane < kLanes && begin + lane < count_; ++lane) {
    Thread& t = thread(begin + lane);
    if (!(mask >> lane & 1) || t.state != Thread::State::at_shuffle) continue;
    current_.thread = static_cast<std::uint16_t>(begin + lane);
    const int distance = static_cast<int>(t.slots[i.from[1]]) & 31, clamp = static_cast<int>(t.slots[i.from[2]]);
    const int from = source_lane(i.shuffle, lane, distance, clamp);
    if (from >= 0 && !(mask >> from & 1)) fault(i, "a shuffle reads a lane outside its mask");
    t.slots[i.to] = static_cast<std::uint32_t>(values[from >= 0 ? from : lane]);
    if (i.was_valid >= 0) t.slots[i.was_valid] = from >= 0;
    ++t.next;
    t.state = Thread::State::ready;
  }
}

}  // namespace ptx
