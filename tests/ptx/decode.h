#pragma once
// SPDX-License-Identifier: MIT

#include <string>

#include "tests/ptx/program.h"
#include "tests/ptx/symbols.h"

namespace ptx {

/// A statement such as: @%p1 ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1+16]
/// `name`: out; the label that it jumps to, or the function that it calls. Throws std::runtime_error for what is not known.
Instruction decode(std::string statement, Symbols& symbols, std::string& name);

}  // namespace ptx
