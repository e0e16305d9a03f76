#pragma once
// SPDX-License-Identifier: MIT
//
// Memory of a captured step (engine/device/graph.h). A graph names the addresses that its work reads and writes, so
// these must stay its own for as long as it may be launched, while within it a block that has been released may serve
// again, as in any step. Tensors that a thread makes while a pool is in scope lie in that pool: first those of the
// step that is run before it is captured, so that the capture finds all the memory it needs and takes no more.
// The pool goes when its last owner and the last tensor in it have gone.

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/core/dtype.h"

namespace ab {

class GraphPool : public std::enable_shared_from_this<GraphPool> {
 public:
  static std::shared_ptr<GraphPool> create(Device device);
  ~GraphPool();
  GraphPool(const GraphPool&) = delete;
  GraphPool& operator=(const GraphPool&) = delete;

  /// At least `bytes` bytes, aligned to 256: the smallest free range that has them, or memory of the device. They are
  /// free again when the last copy of the pointer has gone.
  std::shared_ptr<void> allocate(std::size_t bytes);

  Device device() const { return device_; }
  /// The memory that the pool has taken from the device.
  std::size_t bytes() const;

  /// The pool in scope on this thread for tensors of `device`, or null.
  static GraphPool* current(Device device);

  /// While it lives, tensors that this thread makes on the pool's device lie in the pool.
  class Scope {
   public:
    explicit Scope(GraphPool& pool);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    GraphPool* before_;
  };

 private:
  struct Segment {
    std::byte* base = nullptr;
    std::size_t bytes = 0;
    std::map<std::size_t, std::size_t> free{};  // offset and size, neighbours merged
  };
  struct Place {
    std::size_t segment = 0, offset = 0;
  };

  explicit GraphPool(Device device) : device_(device) {}
  Place take(std::size_t bytes);
  void give_back(Place place, std::size_t bytes);

  Device device_;
  std::vector<Segment> segments_;
  mutable std::mutex mutex_;
};

}  // namespace ab
