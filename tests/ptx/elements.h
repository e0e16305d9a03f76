#pragma once
// SPDX-License-Identifier: MIT
//
// Elements of matrices and tensors in device memory, as the doubles of libraries read and write them.

#include <cstdint>

#include "engine/core/dtype.h"
#include "tests/ptx/memory.h"

namespace ptx {

/// On the host.
inline double get_number(const void* at, ab::DType dtype) {
  switch (dtype) {
    case ab::DType::float64: return *static_cast<const double*>(at);
    case ab::DType::bfloat16: return static_cast<float>(*static_cast<const ab::bfloat16*>(at));
    case ab::DType::float16: return static_cast<float>(*static_cast<const ab::float16*>(at));
    default: return *static_cast<const float*>(at);
  }
}

inline double get_element(const void* at, std::int64_t i, ab::DType dtype) {
  return get_number(on_host(static_cast<const char*>(at)) + i * static_cast<std::int64_t>(size_of(dtype)), dtype);
}

inline void set_element(void* device, std::int64_t i, ab::DType dtype, double value) {
  void* const at = on_host(device);
  const auto rounded = static_cast<float>(value);
  switch (dtype) {
    case ab::DType::float64: static_cast<double*>(at)[i] = value; break;
    case ab::DType::bfloat16: static_cast<ab::bfloat16*>(at)[i] = rounded; break;
    case ab::DType::float16: static_cast<ab::float16*>(at)[i] = rounded; break;
    default: static_cast<float*>(at)[i] = rounded;
  }
}

}  // namespace ptx
