#pragma once
// SPDX-License-Identifier: MIT
//
// All-reduces gradients while backward still computes: gradients are packed into flat buckets in the order in
// which backward completes them (last parameter first), and a bucket leaves as soon as it is full
// (Li et al., "PyTorch Distributed", VLDB 2020). All ranks start buckets in the same fixed order: one that is
// full early waits for its predecessors, so ranks whose backward runs in another order still agree.
//
// A rank alone sends nothing: its gradients stay where backward left them and are not rounded. Items that a method
// makes of them go through the buckets all the same.
//
// Gradients are float32; on the wire they may have 16 bits. Then each rank's are rounded once, the sum is taken in float32
// and rounded once (comm.h). float16 ends at 65,504: gradients beyond it arrive as infinity. In 8 bits only the first of two
// exchanges leaves during backward (int8_mean.h).
//
//   GradientBuckets buckets(params, comm, ReduceOp::mean);
//   backward(loss);      // starts all-reduces on the way
//   buckets.finish();    // now every param has the mean gradient of all ranks

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "engine/autograd/var.h"
#include "engine/comm/comm.h"
#include "engine/sync/int8_mean.h"

namespace ab {

/// How gradients travel.
struct GradientWire {
  std::int64_t bucket_bytes = std::int64_t{4} << 20;
  DType dtype = DType::float32;    ///< or bfloat16, float16
  std::optional<Int8Wire> int8{};  ///< in 8 bits; `dtype` is float32 then
  bool operator==(const GradientWire&) const = default;
};

/// The part of a parameter in its bucket: its gradient, or what a method makes of that.
struct BucketItem {
  Param* param;
  std::int64_t elements;  ///< on the wire
  /// Fills this item's place from the gradient, which may be undefined; empty: it is copied, or zeros.
  std::function<void(const Tensor& gradient, const Tensor& place)> pack{};
  /// Takes the reduced place back; empty: it becomes the gradient.
  std::function<void(const Tensor& place)> unpack{};

  bool is_gradient() const { return !pack && !unpack; }
};

class GradientBuckets {
 public:
  /// Frozen parameters are left out. Takes over the gradient hooks of the others until destruction, so an
  /// older object over the same parameters must be gone before a new one is made. `comm` must outlive this.
  GradientBuckets(const std::vector<Param*>& params, Comm& comm, ReduceOp op = ReduceOp::mean,
                  const GradientWire& wire = {});
  /// For items in forward order; buckets are closed by the bytes of gradients, not of payloads.
  GradientBuckets(std::vector<BucketItem> items, Comm& comm, ReduceOp op, const GradientWire& wire);
  ~GradientBuckets();
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;

  /// While off, backward passes only add to the gradients on this rank (accumulation over micro-batches); on
  /// again before the last one.
  void set_exchange(bool on) { exchange_ = on; }

  /// The constructor does so. Where two objects over the same parameters take turns, the one that is next calls this
  /// before backward.
  void take_hooks();

  /// Updates done before the next backward, which rounding to 8 bits depends on.
  void set_step(std::int64_t step) { step_ = step; }

  /// Call once after each backward that exchanges. On return every parameter holds the reduced gradient; one that received
  /// none on this rank counted as zeros. Among ranks the gradients are views of the buckets: they hold until the next
  /// backward.
  void finish();

  std::size_t bucket_count() const { return buckets_.size(); }
  /// Whether some leave before backward is over; one alone is full at its end.
  bool leave_in_backward() const { return comm_.size() > 1 && bucket_count() > 1; }
  /// All that finish() has left: the flat tensors of the buckets, and the gradients that a rank alone has kept.
  std::vector<Tensor> results() const;

 private:
  struct Entry {
    BucketItem item;
    Var hooked;    // the leaf that carries our hook, even if the parameter is given another
    Tensor place;  // its part of the bucket's result; none if the gradient stays where it is
    Tensor sent;   // its part of what travels; none likewise
    bool packed = false;
  };
  struct Bucket {
    std::vector<Entry> entries;
    Tensor sent;
    Tensor result;  // float32; `sent` itself when that is
    std::int64_t bytes = 0;
    std::size_t packed = 0;
    Request request;
    std::unique_ptr<Int8Mean> int8;     // in place of an all-reduce
    std::uint64_t counters_before = 0;  // of rounding, in a step
  };

  void add_bucket(std::vector<BucketItem> items, DType wire);
  void on_grad_ready(Bucket& bucket, Entry& entry);
  void pack(Bucket& bucket, Entry& entry);
  void unpack(Entry& entry);
  void start_full_buckets();

  Comm& comm_;
  ReduceOp op_;
  std::vector<Bucket> buckets_;
  bool exchange_ = true;
  std::size_t next_ = 0;  // the first bucket that has not been started
  std::optional<Int8Wire> int8_;
  std::int64_t step_ = 0;
  std::uint64_t counters_ = 0;  // of rounding, in a step
};

}  // namespace ab
