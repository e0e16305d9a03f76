// SPDX-License-Identifier: MIT
#include "engine/core/graph_pool.h"

#include <algorithm>
#include <limits>

#include "engine/core/memory.h"

namespace ab {
namespace {

constexpr std::size_t kBlockAlignment = 256;                 // as cudaMalloc
constexpr std::size_t kSegmentBytes = std::size_t{8} << 20;  // small tensors share one

std::size_t round_up(std::size_t bytes, std::size_t multiple) {
  return std::max((bytes + multiple - 1) / multiple, std::size_t{1}) * multiple;
}

thread_local GraphPool* pool_in_scope = nullptr;

}  // namespace

std::shared_ptr<GraphPool> GraphPool::create(Device device) {
  return std::shared_ptr<GraphPool>(new GraphPool(device));
}

GraphPool::~GraphPool() {
  for (const Segment& segment : segments_) memory(device_).release(segment.base, segment.bytes);
}

std::shared_ptr<void> GraphPool::allocate(std::size_t bytes) {
  const std::size_t size = round_up(bytes, kBlockAlignment);
  const std::lock_guard lock(mutex_);
  const Place place = take(size);
  return {segments_[place.segment].base + place.offset,
          [pool = shared_from_this(), place, size](void*) { pool->give_back(place, size); }};
}

/// Needs the mutex.
GraphPool::Place GraphPool::take(std::size_t bytes) {
  Place best;
  std::size_t best_size = std::numeric_limits<std::size_t>::max();
  for (std::size_t i = 0; i < segments_.size(); ++i)
    for (const auto& [offset, size] : segments_[i].free)
      if (bytes <= size && size < best_size) best = {i, offset}, best_size = size;
  if (best_size == std::numeric_limits<std::size_t>::max()) {
    best = {segments_.size(), 0};
    best_size = round_up(bytes, kSegmentBytes);
    segments_.push_back({static_cast<std::byte*>(memory(device_).allocate(best_size)), best_size});
  } else {
    segments_[best.segment].free.erase(best.offset);
  }
  if (best_size > bytes) segments_[best.segment].free[best.offset + bytes] = best_size - bytes;
  return best;
}

void GraphPool::give_back(Place place, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  std::map<std::size_t, std::size_t>& free = segments_[place.segment].free;
  auto next = free.lower_bound(place.offset);
  if (next != free.end() && next->first == place.offset + bytes) {
    bytes += next->second;
    next = free.erase(next);
  }
  if (next != free.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == place.offset) {
      before->second += bytes;
      return;
    }
  }
  free[place.offset] = bytes;
}

std::size_t GraphPool::bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t sum = 0;
  for (const Segment& segment : segments_) sum += segment.bytes;
  return sum;
}

GraphPool* GraphPool::current(Device device) {
  return pool_in_scope && pool_in_scope->device_ == device ? pool_in_scope : nullptr;
}

GraphPool::Scope::Scope(GraphPool& pool) : before_(pool_in_scope) { pool_in_scope = &pool; }
GraphPool::Scope::~Scope() { pool_in_scope = before_; }

}  // namespace ab
