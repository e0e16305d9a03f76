// SPDX-License-Identifier: MIT
#include "engine/backend/cuda/cudnn_descriptor.h"

#include <utility>

namespace ab::cuda {

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  AB_CUDA(cudnnBackendCreateDescriptor(type, &raw_));
}

CudnnDescriptor::~CudnnDescriptor() {
  if (raw_) cudnnBackendDestroyDescriptor(raw_);
}

CudnnDescriptor::CudnnDescriptor(CudnnDescriptor&& other) noexcept : raw_(std::exchange(other.raw_, nullptr)) {}

CudnnDescriptor& CudnnDescriptor::operator=(CudnnDescriptor&& other) noexcept {
  std::swap(raw_, other.raw_);
  return *this;
}

CudnnDescriptor& CudnnDescriptor::set(cudnnBackendAttributeName_t name, const CudnnDescriptor& part) {
  return set_raw(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part.raw_);
}

CudnnDescriptor& CudnnDescriptor::set(cudnnBackendAttributeName_t name, const std::vector<CudnnDescriptor>& parts) {
  std::vector<cudnnBackendDescriptor_t> raw_parts;
  for (const CudnnDescriptor& part : parts) raw_parts.push_back(part.raw_);
  return set_raw(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(raw_parts.size()), raw_parts.data());
}

CudnnDescriptor& CudnnDescriptor::set_raw(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                          std::int64_t count, const void* values) {
  AB_CUDA(cudnnBackendSetAttribute(raw_, name, type, count, values));
  return *this;
}

std::int64_t CudnnDescriptor::get_int64(cudnnBackendAttributeName_t name) const {
  std::int64_t value = 0, count = 0;
  AB_CUDA(cudnnBackendGetAttribute(raw_, name, CUDNN_TYPE_INT64, 1, &count, &value));
  return value;
}

std::vector<cudnnBackendNumericalNote_t> CudnnDescriptor::get_numerical_notes(cudnnBackendAttributeName_t name) const {
  std::vector<cudnnBackendNumericalNote_t> notes(CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  std::int64_t count = 0;
  AB_CUDA(cudnnBackendGetAttribute(raw_, name, CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count,
                                   notes.data()));
  notes.resize(static_cast<std::size_t>(count));
  return notes;
}

std::vector<CudnnDescriptor> CudnnDescriptor::get_descriptors(cudnnBackendAttributeName_t name,
                                                              cudnnBackendDescriptorType_t type,
                                                              std::int64_t at_most) const {
  std::vector<CudnnDescriptor> parts;
  std::vector<cudnnBackendDescriptor_t> raw_parts;
  for (std::int64_t i = 0; i < at_most; ++i) raw_parts.push_back(parts.emplace_back(type).raw());
  std::int64_t count = 0;
  AB_CUDA(cudnnBackendGetAttribute(raw_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, at_most, &count, raw_parts.data()));
  // cuDNN reports how many there are in all, which may be more than there was room for.
  while (std::cmp_greater(parts.size(), count)) parts.pop_back();
  return parts;
}

CudnnDescriptor& CudnnDescriptor::finalize() {
  AB_CUDA(cudnnBackendFinalize(raw_));
  return *this;
}

}  // namespace ab::cuda
