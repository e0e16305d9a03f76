#pragma once
// SPDX-License-Identifier: MIT
//
// The JSON part of a safetensors file, read as a stream of events: nothing is built from it but the entries
// themselves, so a header can neither nest nor repeat its way to memory that it does not have the bytes for.

#include <string_view>

#include "engine/io/safetensors.h"

namespace ab {

/// "F32" for float32 …
std::string_view safetensors_dtype_name(DType dtype);

}  // namespace ab
