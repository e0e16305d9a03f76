// SPDX-License-Identifier: MIT
#include "engine/sync/gradient_buckets.h"

#include <algorithm>
#include <ranges>

#include "engine/kernels/elementwise.h"
#include "engine/kernels/pack.h"

namespace ab {
namespace {

/// In the order of their places in a bucket. Kernels of a GPU read neighbours as Packs, where these are aligned: one of
/// an odd size misaligns all behind it, so those come last, the largest of them first.
std::vector<Param*> in_order_of_places(std::span<Param* const> params) {
  std::vector<Param*> ordered(params.begin(), params.end());
  const auto odd = std::ranges::stable_partition(
      ordered, [](const Param* p) { return p->numel() % kPackWidth<float> == 0; });
  std::ranges::stable_sort(odd, std::ranges::greater(), &Param::numel);
  return ordered;
}

}  // namespace

std::vector<std::size_t> bucket_ends(std::span<const std::int64_t> bytes, std::int64_t bucket_bytes) {
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

GradientBuckets::GradientBuckets(const std::vector<Param*>& params, Comm& comm, ReduceOp op,
                                 const GradientWire& wire)
    : comm_(comm), op_(op) {
  AB_CHECK(wire.dtype == DType::float32 || wire.dtype == DType::bfloat16 || wire.dtype == DType::float16,
           "gradients travel as float32, bfloat16 or float16, not {}", name_of(wire.dtype));
  std::vector<Param*> trained;
  std::vector<std::int64_t> bytes;
  for (auto it = params.rbegin(); it != params.rend(); ++it) {
    Param* const param = *it;
    if (!param->trainable()) continue;
    AB_CHECK(param->value.value().dtype() == DType::float32, "gradient buckets: {} is {}, not float32",
             param->name, name_of(param->value.value().dtype()));
    trained.push_back(param);
    bytes.push_back(param->numel() * static_cast<std::int64_t>(size_of(wire.dtype)));
  }
  std::size_t begin = 0;
  for (const std::size_t end : bucket_ends(bytes, wire.bucket_bytes)) {
    add_bucket(std::span(trained).subspan(begin, end - begin), wire.dtype);
    begin = end;
  }

  // Only now, when the vectors no longer move, may hooks point into them.
  for (Bucket& bucket : buckets_)
    for (Entry& entry : bucket.entries)
      entry.hooked.set_grad_ready_hook([this, &bucket, &entry] { on_grad_ready(bucket, entry); });
}

GradientBuckets::~GradientBuckets() {
  for (Bucket& bucket : buckets_)
    for (Entry& entry : bucket.entries) entry.hooked.set_grad_ready_hook({});
}

void GradientBuckets::add_bucket(std::span<Param* const> params, DType wire) {
  Bucket& bucket = buckets_.emplace_back();
  std::int64_t elements = 0;
  for (const Param* param : params) elements += param->numel();
  bucket.result = Tensor(Shape{elements}, DType::float32, params.front()->value.value().device());
  bucket.sent = wire == DType::float32 ? bucket.result : Tensor(Shape{elements}, wire, bucket.result.device());
  std::int64_t begin = 0;
  for (Param* const param : in_order_of_places(params)) {
    const std::int64_t end = begin + param->numel();
    bucket.entries.push_back({param, param->value, bucket.result.slice(begin, end), bucket.sent.slice(begin, end)});
    begin = end;
  }
}

void GradientBuckets::on_grad_ready(Bucket& bucket, Entry& entry) {
  if (!exchange_) return;
  AB_CHECK(!entry.packed,
           "{} received a second gradient before the first was exchanged: call finish() after each backward",
           entry.param->name);
  pack(bucket, entry);
  start_full_buckets();
}

void GradientBuckets::pack(Bucket& bucket, Entry& entry) {
  const Tensor& grad = entry.param->value.grad();
  AB_CHECK(entry.param->numel() == entry.place.numel(),
           "{} changed its shape to {} after its gradient bucket was laid out", entry.param->name,
           entry.param->value.shape().str());
  if (grad.defined()) cast_into(entry.sent, grad);
  else entry.sent.set_zero();
  entry.packed = true;
  ++bucket.packed;
}

void GradientBuckets::start_full_buckets() {
  for (; next_ < buckets_.size() && buckets_[next_].packed == buckets_[next_].entries.size(); ++next_)
    buckets_[next_].request = comm_.all_reduce_async(buckets_[next_].sent, op_);
}

void GradientBuckets::finish() {
  for (Bucket& bucket : buckets_)
    for (Entry& entry : bucket.entries)
      if (!entry.packed) pack(bucket, entry);
  start_full_buckets();
  for (Bucket& bucket : buckets_) {
    bucket.request.wait();
    if (bucket.sent.dtype() != DType::float32) cast_into(bucket.result, bucket.sent);
    bucket.packed = 0;
    for (Entry& entry : bucket.entries) {
      Var& value = entry.param->value;
      value.set_grad(entry.place.view(value.shape()));
      entry.packed = false;
    }
  }
  next_ = 0;
}

}  // namespace ab
