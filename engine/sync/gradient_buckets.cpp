// SPDX-License-Identifier: MIT
#include "engine/sync/gradient_buckets.h"

#include <algorithm>

#include "engine/kernels/elementwise.h"
#include "engine/kernels/pack.h"

namespace ab {
namespace {

/// In the order of their places in a bucket. Kernels of a GPU read neighbours as Packs, where these are aligned: one of
/// an odd size misaligns all behind it, so those come last, the largest of them first.
void sort_by_places(std::vector<BucketItem>& items) {
  const auto odd = std::stable_partition(items.begin(), items.end(),
                                         [](const BucketItem& item) { return item.elements % kPackWidth<float> == 0; });
  std::stable_sort(odd, items.end(), [](const BucketItem& a, const BucketItem& b) { return a.elements > b.elements; });
}

std::vector<BucketItem> whole_gradients(const std::vector<Param*>& params) {
  std::vector<BucketItem> items;
  for (Param* const param : params)
    if (param->trainable()) items.push_back({param, param->numel()});
  return items;
}

/// Which parameters travel together: given the bytes of each in the order in which backward completes them, the
/// index past the last one of every bucket. A bucket is closed before the parameter that would make it larger.
std::vector<std::size_t> bucket_ends(const std::vector<std::int64_t>& bytes, std::int64_t bucket_bytes) {
  AB_CHECK(bucket_bytes > 0, "gradient buckets need a positive size, got {} bytes", bucket_bytes);
  std::vector<std::size_t> ends;
  std::int64_t filled = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const std::size_t begin = ends.empty() ? 0 : ends.back();
    if (i > begin && filled + bytes[i] > bucket_bytes) {
      ends.push_back(i);
      filled = 0;
    }
    filled += bytes[i];
  }
  if (!bytes.empty()) ends.push_back(bytes.size());
  return ends;
}

}  // namespace

GradientBuckets::GradientBuckets(const std::vector<Param*>& params, Comm& comm, ReduceOp op, const GradientWire& wire)
    : GradientBuckets(whole_gradients(params), comm, op, wire) {}

GradientBuckets::GradientBuckets(std::vector<BucketItem> items, Comm& comm, ReduceOp op, const GradientWire& wire)
    : comm_(comm), op_(op), int8_(wire.int8) {
  AB_CHECK(wire.dtype == DType::float32 || wire.dtype == DType::bfloat16 || wire.dtype == DType::float16,
           "gradients travel as float32, bfloat16 or float16, not {}", name_of(wire.dtype));
  AB_CHECK(!int8_ || (wire.dtype == DType::float32 && op == ReduceOp::mean), "8 bits carry means of float32");
  std::ranges::reverse(items);
  std::vector<std::int64_t> bytes;
  for (const BucketItem& item : items) {
    const Tensor& value = item.param->value.value();
    AB_CHECK(value.dtype() == DType::float32, "gradient buckets: {} is {}, not float32", item.param->name,
             name_of(value.dtype()));
    bytes.push_back(value.numel() * (int8_ ? 1 : static_cast<std::int64_t>(size_of(wire.dtype))));
  }
  std::size_t begin = 0;
  for (const std::size_t end : bucket_ends(bytes, wire.bucket_bytes)) {
    const auto at = [&](std::size_t i) { return items.begin() + static_cast<std::ptrdiff_t>(i); };
    add_bucket({at(begin), at(end)}, wire.dtype);
    begin = end;
  }
  take_hooks();
}

void GradientBuckets::take_hooks() {
  // The vectors no longer move, so hooks may point into them.
  for (Bucket& bucket : buckets_)
    for (Entry& entry : bucket.entries)
      entry.hooked.set_grad_ready_hook([this, &bucket, &entry] { on_grad_ready(bucket, entry); });
}

GradientBuckets::~GradientBuckets() {
  for (Bucket& bucket : buckets_)
    for (Entry& entry : bucket.entries) entry.hooked.set_grad_ready_hook({});
}

void GradientBuckets::add_bucket(std::vector<BucketItem> items, DType wire) {
  Bucket& bucket = buckets_.emplace_back();
  const auto stays = [this](const BucketItem& item) { return comm_.size() == 1 && item.is_gradient(); };
  std::int64_t elements = 0;
  for (const BucketItem& item : items) {
    bucket.bytes += item.elements * static_cast<std::int64_t>(size_of(wire));
    if (!stays(item)) elements += item.elements;
  }
  bucket.result = Tensor(Shape{elements}, DType::float32, items.front().param->value.value().device());
  bucket.sent = wire == DType::float32 ? bucket.result : Tensor(Shape{elements}, wire, bucket.result.device());
  if (int8_ && comm_.size() > 1) {
    bucket.int8 = std::make_unique<Int8Mean>(elements, *int8_, comm_, bucket.result.device());
    bucket.counters_before = counters_;
    counters_ += bucket.int8->counters();
  }
  sort_by_places(items);
  std::int64_t begin = 0;
  for (BucketItem& item : items) {
    Entry& entry = bucket.entries.emplace_back();
    entry.item = std::move(item);
    entry.hooked = entry.item.param->value;
    if (stays(entry.item)) continue;
    const std::int64_t end = begin + entry.item.elements;
    entry.place = bucket.result.slice(begin, end);
    entry.sent = bucket.sent.slice(begin, end);
    begin = end;
  }
}

void GradientBuckets::on_grad_ready(Bucket& bucket, Entry& entry) {
  if (!exchange_) return;
  AB_CHECK(!entry.packed,
           "{} received a second gradient before the first was exchanged: call finish() after each backward",
           entry.item.param->name);
  pack(bucket, entry);
  start_full_buckets();
}

void GradientBuckets::pack(Bucket& bucket, Entry& entry) {
  const BucketItem& item = entry.item;
  const Tensor& grad = item.param->value.grad();
  if (item.pack) {
    item.pack(grad, entry.place);
    cast_into(entry.sent, entry.place);
  } else {
    AB_CHECK(item.param->numel() == item.elements, "{} changed its shape to {} after its gradient bucket was laid out",
             item.param->name, item.param->value.shape().str());
    if (entry.sent.defined() && grad.defined()) cast_into(entry.sent, grad);
    else if (entry.sent.defined()) entry.sent.set_zero();
  }
  entry.packed = true;
  ++bucket.packed;
}

void GradientBuckets::start_full_buckets() {
  for (; next_ < buckets_.size() && buckets_[next_].packed == buckets_[next_].entries.size(); ++next_) {
    Bucket& bucket = buckets_[next_];
    if (bucket.int8)
      bucket.int8->start(bucket.result, static_cast<std::uint64_t>(step_) * counters_ + bucket.counters_before);
    else if (comm_.size() == 1) comm_.count_all_reduce_alone(bucket.bytes);
    else bucket.request = comm_.all_reduce_async(bucket.sent, op_);
  }
}

void GradientBuckets::finish() {
  for (Bucket& bucket : buckets_)
    for (Entry& entry : bucket.entries)
      if (!entry.packed) pack(bucket, entry);
  start_full_buckets();
  for (Bucket& bucket : buckets_)
    if (bucket.int8) bucket.int8->add_up();
  for (Bucket& bucket : buckets_) {
    if (bucket.int8) bucket.int8->finish(bucket.result);
    bucket.request.wait();
    cast_into(bucket.result, bucket.sent);
    bucket.packed = 0;
    for (Entry& entry : bucket.entries) {
      unpack(entry);
      entry.packed = false;
    }
  }
  next_ = 0;
}

void GradientBuckets::unpack(Entry& entry) {
  Var& value = entry.item.param->value;
  if (entry.item.unpack) entry.item.unpack(entry.place);
  else if (entry.place.defined()) value.set_grad(entry.place.view(value.shape()));
  else if (!value.grad().defined())
    value.set_grad(Tensor::zeros(value.shape(), DType::float32, value.value().device()));
}

std::vector<Tensor> GradientBuckets::results() const {
  std::vector<Tensor> all;
  for (const Bucket& bucket : buckets_) {
    if (bucket.result.numel() > 0) all.push_back(bucket.result);
    for (const Entry& entry : bucket.entries)
      if (!entry.place.defined()) all.push_back(entry.item.param->value.grad());
  }
  return all;
}

}  // namespace ab
