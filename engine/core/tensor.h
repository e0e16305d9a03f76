#pragma once
// SPDX-License-Identifier: MIT
//
// Tensor: shape, element type, device and shared storage; no mathematics.
// A tensor is always contiguous in row-major order, so that no operation ever has to ask: a view changes
// the shape or takes a range of the first dimension, and anything else copies. Copying a Tensor object
// shares the storage, as copying a pointer would; clone() copies the elements.
// Conventions everywhere: activations are NHWC, convolution weights are KRSC (output channel, kernel row,
// kernel column, input channel), matrices are row-major.

#include <algorithm>
#include <array>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/core/dtype.h"
#include "engine/core/memory.h"

namespace ab {

/// Up to six dimensions, held in place.
class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span<const std::int64_t>(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const std::int64_t> dims);

  int rank() const { return rank_; }
  std::int64_t operator[](int i) const { return dims_[static_cast<std::size_t>(i)]; }
  std::int64_t& operator[](int i) { return dims_[static_cast<std::size_t>(i)]; }
  std::int64_t numel() const;
  const std::int64_t* begin() const { return dims_.data(); }
  const std::int64_t* end() const { return dims_.data() + rank_; }
  std::string str() const;  ///< "[128, 32, 32, 3]"
  bool operator==(const Shape& other) const { return std::equal(begin(), end(), other.begin(), other.end()); }

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

class Tensor {
 public:
  /// No storage; defined() is false.
  Tensor() = default;
  /// Uninitialised elements.
  explicit Tensor(const Shape& shape, DType dtype = DType::float32, Device device = {});

  static Tensor zeros(const Shape& shape, DType dtype = DType::float32, Device device = {});
  /// Copies host values; T chooses the element type.
  template <class T> static Tensor from(std::span<const T> values, const Shape& shape, Device device = {});
  template <class T> static Tensor from(const std::vector<T>& values, const Shape& shape, Device device = {}) {
    return from(std::span<const T>(values), shape, device);
  }
  static Tensor scalar(double value, DType dtype = DType::float32, Device device = {});

  bool defined() const { return storage_ != nullptr; }
  const Shape& shape() const { return shape_; }
  int rank() const { return shape_.rank(); }
  /// Size of dimension i; negative i counts from the end.
  std::int64_t dim(int i) const { return shape_[i < 0 ? i + shape_.rank() : i]; }
  std::int64_t numel() const { return numel_; }
  std::size_t bytes() const { return static_cast<std::size_t>(numel_) * size_of(dtype_); }
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  /// Whether any other tensor holds the same storage.
  bool is_shared() const { return storage_.use_count() > 1; }
  bool shares_storage_with(const Tensor& other) const { return defined() && storage_ == other.storage_; }

  /// Typed pointer to the first element; T must match dtype().
  template <class T> T* data() const {
    AB_CHECK(dtype_of<T> == dtype_, "a {} tensor was read as {}", name_of(dtype_), name_of(dtype_of<T>));
    return static_cast<T*>(raw());
  }
  void* raw() const { return base_; }
  /// All elements as a span; host tensors only.
  template <class T> std::span<T> span() const {
    AB_CHECK(device_.kind == DeviceKind::cpu, "span(): the tensor is not in host memory; copy it with to(Device{{}})");
    return {data<T>(), static_cast<std::size_t>(numel_)};
  }

  /// The same elements in a different shape of equal size; one dimension may be -1.
  Tensor view(Shape shape) const;
  /// Rows [begin, end) of the first dimension, sharing storage.
  Tensor slice(std::int64_t begin, std::int64_t end) const;
  Tensor clone() const;
  /// The same values on a different device (this tensor itself when it is already there).
  Tensor to(Device device) const;
  void set_zero() const;
  /// Overwrites all elements with those of `from` (same size and type, any device).
  void copy_from(const Tensor& from) const;
  /// The only element, as a double; copies from the device. `assumed`: what it is taken for on the device of shapes, which
  /// has no numbers; where nothing is assumed, asking there is a bug.
  double item(std::optional<double> assumed = {}) const;
  /// All elements in host memory, converted to double: for tests, logs and decisions, not for inner loops.
  std::vector<double> to_doubles(std::optional<double> assumed = {}) const;

 private:
  std::shared_ptr<void> storage_;
  void* base_ = nullptr;
  Shape shape_;
  std::int64_t numel_ = 0;
  DType dtype_ = DType::float32;
  Device device_;
};

/// Reading a few values of a device without waiting for it. A read takes its place behind the work that has been
/// issued so far; whoever looks at it later, when more work has been issued, leaves the device nothing to wait for.
///
///   HostRead read(loss);   // issued
///   …                      // the next step is issued
///   read.item();           // what the loss was at that time; waits for the copy alone
class HostRead {
 public:
  HostRead() = default;
  /// Reads at most kHostCopyBytes. The tensor may change, or go, as soon as this has returned.
  explicit HostRead(const Tensor& tensor);

  bool defined() const { return values_.defined(); }
  /// The values, in host memory. On the thread that made this.
  const Tensor& get();
  /// The only one, as a double.
  double item() { return get().item(); }

 private:
  std::unique_ptr<HostCopy> copy_;  // until it has been waited for
  Tensor values_;
};

}  // namespace ab
