#pragma once
// SPDX-License-Identifier: MIT
//
// An owner for the descriptors of cuDNN's graph interface. A descriptor is created, given its attributes and
// finalised; the C++ type of a value decides how cuDNN is told about it.

#include <initializer_list>
#include <span>
#include <vector>

#include "engine/backend/cuda/libraries.h"

namespace ab::cuda {

template <class T>
inline constexpr cudnnBackendAttributeType_t kAttributeType =
    [] { static_assert(sizeof(T) == 0, "cuDNN has no attribute type for this C++ type, or it is not listed here"); }();
template <> inline constexpr cudnnBackendAttributeType_t kAttributeType<std::int64_t> = CUDNN_TYPE_INT64;
template <> inline constexpr cudnnBackendAttributeType_t kAttributeType<float> = CUDNN_TYPE_FLOAT;
template <> inline constexpr cudnnBackendAttributeType_t kAttributeType<double> = CUDNN_TYPE_DOUBLE;
template <> inline constexpr cudnnBackendAttributeType_t kAttributeType<char> = CUDNN_TYPE_CHAR;
template <> inline constexpr cudnnBackendAttributeType_t kAttributeType<bool> = CUDNN_TYPE_BOOLEAN;
template <> inline constexpr cudnnBackendAttributeType_t kAttributeType<void*> = CUDNN_TYPE_VOID_PTR;
template <> inline constexpr cudnnBackendAttributeType_t kAttributeType<cudnnHandle_t> = CUDNN_TYPE_HANDLE;
template <> inline constexpr cudnnBackendAttributeType_t kAttributeType<cudnnDataType_t> = CUDNN_TYPE_DATA_TYPE;
template <>
inline constexpr cudnnBackendAttributeType_t kAttributeType<cudnnConvolutionMode_t> = CUDNN_TYPE_CONVOLUTION_MODE;
template <>
inline constexpr cudnnBackendAttributeType_t kAttributeType<cudnnPointwiseMode_t> = CUDNN_TYPE_POINTWISE_MODE;
template <>
inline constexpr cudnnBackendAttributeType_t kAttributeType<cudnnReduceTensorOp_t> = CUDNN_TYPE_REDUCTION_OPERATOR_TYPE;
template <>
inline constexpr cudnnBackendAttributeType_t kAttributeType<cudnnNanPropagation_t> = CUDNN_TYPE_NAN_PROPOGATION;
template <> inline constexpr cudnnBackendAttributeType_t kAttributeType<cudnnBackendHeurMode_t> = CUDNN_TYPE_HEUR_MODE;
template <>
inline constexpr cudnnBackendAttributeType_t kAttributeType<cudnnBackendNumericalNote_t> = CUDNN_TYPE_NUMERICAL_NOTE;

class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  ~CudnnDescriptor();
  CudnnDescriptor(CudnnDescriptor&& other) noexcept;
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept;

  template <class T> CudnnDescriptor& set(cudnnBackendAttributeName_t name, std::span<const T> values) {
    return set_raw(name, kAttributeType<T>, static_cast<std::int64_t>(values.size()), values.data());
  }
  template <class T> CudnnDescriptor& set(cudnnBackendAttributeName_t name, std::initializer_list<T> values) {
    return set(name, std::span<const T>(values.begin(), values.size()));
  }
  template <class T> CudnnDescriptor& set(cudnnBackendAttributeName_t name, const T& value) {
    return set(name, std::span<const T>(&value, 1));
  }
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, const CudnnDescriptor& part);
  CudnnDescriptor& set(cudnnBackendAttributeName_t name, const std::vector<CudnnDescriptor>& parts);

  std::int64_t get_int64(cudnnBackendAttributeName_t name) const;
  std::vector<cudnnBackendNumericalNote_t> get_numerical_notes(cudnnBackendAttributeName_t name) const;
  /// Up to `at_most` descriptors of the given type that cuDNN fills in.
  std::vector<CudnnDescriptor> get_descriptors(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type,
                                               std::int64_t at_most) const;

  CudnnDescriptor& finalize();
  /// For descriptors that cuDNN may rightly refuse: heuristics and plans.
  cudnnStatus_t try_finalize() { return cudnnBackendFinalize(raw_); }

  cudnnBackendDescriptor_t raw() const { return raw_; }

 private:
  CudnnDescriptor& set_raw(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                           const void* values);

  cudnnBackendDescriptor_t raw_ = nullptr;
};

}  // namespace ab::cuda
