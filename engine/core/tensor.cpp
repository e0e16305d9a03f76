// SPDX-License-Identifier: MIT
#include "engine/core/tensor.h"

#include "engine/core/graph_pool.h"
#include "engine/core/memory.h"

namespace ab {

Shape::Shape(std::span<const std::int64_t> dims) {
  AB_CHECK(dims.size() <= kMaxRank, "a shape has at most {} dimensions, got {}", int{kMaxRank}, dims.size());
  std::copy(dims.begin(), dims.end(), dims_.begin());
  rank_ = static_cast<int>(dims.size());
}

std::int64_t Shape::numel() const {
  std::int64_t product = 1;
  for (std::int64_t d : *this) product *= d;
  return product;
}

std::string Shape::str() const { return fmt::format("[{}]", fmt::join(begin(), end(), ", ")); }

Tensor::Tensor(const Shape& shape, DType dtype, Device device)
    : shape_(shape), numel_(shape.numel()), dtype_(dtype), device_(device) {
  for (std::int64_t d : shape) AB_CHECK(d >= 0, "a tensor cannot have shape {}", shape.str());
  const std::size_t size = bytes();
  if (GraphPool* pool = GraphPool::current(device)) storage_ = pool->allocate(size);
  else
    storage_ = std::shared_ptr<void>(memory(device).allocate(size),
                                     [device, size](void* block) { memory(device).release(block, size); });
  base_ = storage_.get();
}

Tensor Tensor::zeros(const Shape& shape, DType dtype, Device device) {
  Tensor t(shape, dtype, device);
  t.set_zero();
  return t;
}

template <class T> Tensor Tensor::from(std::span<const T> values, const Shape& shape, Device device) {
  Tensor t(shape, dtype_of<T>, device);
  AB_CHECK(static_cast<std::int64_t>(values.size()) == t.numel(), "{} values do not fill a tensor of shape {}",
           values.size(), shape.str());
  memory(device).copy_from_host(t.raw(), values.data(), t.bytes());
  return t;
}
template Tensor Tensor::from(std::span<const float>, const Shape&, Device);
template Tensor Tensor::from(std::span<const double>, const Shape&, Device);
template Tensor Tensor::from(std::span<const bfloat16>, const Shape&, Device);
template Tensor Tensor::from(std::span<const float16>, const Shape&, Device);
template Tensor Tensor::from(std::span<const std::int64_t>, const Shape&, Device);
template Tensor Tensor::from(std::span<const std::uint8_t>, const Shape&, Device);

Tensor Tensor::scalar(double value, DType dtype, Device device) {
  return dispatch_float(dtype, "scalar", [&]<class T>() {
    const T v = static_cast<T>(value);
    return from(std::span<const T>(&v, 1), Shape{1}, device);
  });
}

Tensor Tensor::view(Shape shape) const {
  std::int64_t known = 1;
  int free_dim = -1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] >= 0) known *= shape[i];
    else free_dim = i;
  }
  if (free_dim >= 0 && known > 0) shape[free_dim] = numel_ / known;
  AB_CHECK(shape.numel() == numel_, "a tensor of shape {} cannot be viewed as {}", shape_.str(), shape.str());
  Tensor t = *this;
  t.shape_ = shape;
  return t;
}

Tensor Tensor::slice(std::int64_t begin, std::int64_t end) const {
  AB_CHECK(rank() > 0 && 0 <= begin && begin <= end && end <= dim(0), "rows [{}, {}) are not in a tensor of shape {}",
           begin, end, shape_.str());
  Tensor t = *this;
  const std::int64_t row = dim(0) == 0 ? 0 : numel_ / dim(0);
  t.base_ = static_cast<char*>(base_) + static_cast<std::size_t>(begin * row) * size_of(dtype_);
  t.shape_[0] = end - begin;
  t.numel_ = (end - begin) * row;
  return t;
}

Tensor Tensor::clone() const {
  Tensor t(shape_, dtype_, device_);
  t.copy_from(*this);
  return t;
}

Tensor Tensor::to(Device device) const {
  if (device == device_) return *this;
  Tensor t(shape_, dtype_, device);
  t.copy_from(*this);
  return t;
}

void Tensor::set_zero() const { memory(device_).set_zero(raw(), bytes()); }

void Tensor::copy_from(const Tensor& from) const {
  AB_CHECK(from.numel_ == numel_ && from.dtype_ == dtype_, "cannot copy a {} tensor {} into a {} tensor {}",
           name_of(from.dtype_), from.shape_.str(), name_of(dtype_), shape_.str());
  if (device_ == from.device_) memory(device_).copy(raw(), from.raw(), bytes());
  else if (from.device_.kind == DeviceKind::cpu) memory(device_).copy_from_host(raw(), from.raw(), bytes());
  else if (device_.kind == DeviceKind::cpu) memory(from.device_).copy_to_host(raw(), from.raw(), bytes());
  else copy_from(from.to(Device{}));
}

double Tensor::item(std::optional<double> assumed) const {
  AB_CHECK(numel_ == 1, "item(): a tensor of shape {} has more than one element", shape_.str());
  return to_doubles(assumed)[0];
}

std::vector<double> Tensor::to_doubles(std::optional<double> assumed) const {
  if (device_.kind == DeviceKind::shapes && assumed)
    return std::vector<double>(static_cast<std::size_t>(numel_), *assumed);
  const Tensor host = to(Device{});
  std::vector<double> values(static_cast<std::size_t>(numel_));
  const auto convert = [&]<class T>() {
    std::transform(host.data<T>(), host.data<T>() + numel_, values.begin(), [](T v) { return static_cast<double>(v); });
  };
  if (dtype_ == DType::int64) convert.operator()<std::int64_t>();
  else if (dtype_ == DType::uint8) convert.operator()<std::uint8_t>();
  else dispatch_float(dtype_, "to_doubles", convert);
  return values;
}

HostRead::HostRead(const Tensor& tensor) : values_(tensor.shape(), tensor.dtype()) {
  AB_ASSERT(tensor.bytes() <= kHostCopyBytes);
  copy_ = memory(tensor.device()).start_copy_to_host(tensor.raw(), tensor.bytes());
}

const Tensor& HostRead::get() {
  if (copy_) memory(Device{}).copy_from_host(values_.raw(), copy_->wait(), values_.bytes());
  copy_.reset();
  return values_;
}

}  // namespace ab
