#pragma once
// SPDX-License-Identifier: MIT
//
// The checks at the entry of every operation.

#include <string_view>

#include "engine/core/tensor.h"

namespace ab {

/// Throws Error(config) unless `other` has the element type and the device of `x`.
inline void check_alike(std::string_view operation, const Tensor& x, std::string_view other_name, const Tensor& other) {
  AB_CHECK(other.dtype() == x.dtype(), "{}: x is {} but {} is {}; cast one of them", operation, name_of(x.dtype()),
           other_name, name_of(other.dtype()));
  AB_CHECK(other.device() == x.device(), "{}: x and {} are on different devices; move one of them with to()", operation,
           other_name);
}

}  // namespace ab
