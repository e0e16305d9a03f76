#pragma once
// SPDX-License-Identifier: MIT
//
// One convolution, planned by cuDNN for one device. A convolution knows its tensors by role: x and y are the
// activations before and after it and w is the filter, in every direction:
//   forward  (x, w) → y      backward_data  (y, w) → x      backward_weight  (y, x) → w
// NHWC activations and KRSC filters are given to cuDNN as strides. bfloat16 and float16 are stored, float32 is
// computed and accumulated; float32 is computed as such, without the shortened products of TF32 unless they are
// allowed.

#include <cstddef>
#include <optional>

#include "engine/backend/backend.h"
#include "engine/backend/cuda/cudnn_descriptor.h"

namespace ab::cuda {

enum class ConvDirection : std::uint8_t { forward, backward_data, backward_weight };

std::string_view name_of(ConvDirection direction);

/// Everything a plan depends on, besides the device.
struct CudnnConvKey {
  Conv2dSpec spec;
  ConvDirection direction = ConvDirection::forward;
  DType dtype = DType::float32;
  std::int64_t alignment = 16;  ///< bytes that divide the address of every tensor
  bool tf32 = false;            ///< float32: products may be those of TF32

  bool operator==(const CudnnConvKey&) const = default;
};

struct CudnnConvKeyHash {
  std::size_t operator()(const CudnnConvKey& key) const;
};

class CudnnConv {
 public:
  /// Takes the first plan in cuDNN's order of preference that repeats bit for bit and keeps the precision
  /// promised above; where none repeats, the first that keeps the precision.
  /// Throws Error(communication) when cuDNN has no plan at all.
  CudnnConv(const CudnnConvKey& key, const CudnnDescriptor& device_properties);

  std::size_t workspace_bytes() const { return workspace_bytes_; }
  bool is_deterministic() const { return is_deterministic_; }

  /// `workspace` has workspace_bytes(). Runs on the stream of `handle`.
  void execute(cudnnHandle_t handle, const void* x, const void* w, const void* y, void* workspace) const;

 private:
  bool try_plan(const CudnnDescriptor& config, const CudnnDescriptor& device_properties);

  CudnnDescriptor graph_;
  std::optional<CudnnDescriptor> plan_;  // set by the constructor
  std::size_t workspace_bytes_ = 0;
  bool is_deterministic_ = true;
};

}  // namespace ab::cuda
