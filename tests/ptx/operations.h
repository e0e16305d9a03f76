#pragma once
// SPDX-License-Identifier: MIT
//
// What each arithmetic instruction of PTX does, by the PTX ISA.

#include <string>
#include <string_view>
#include <vector>

#include "tests/ptx/program.h"

namespace ptx {

/// Of an instruction such as add.rn.f32, split at its dots; null when there is none.
Operation find_operation(const std::vector<std::string>& parts);

/// Packs `elements` into `to`, or unpacks from[0] into them.
void pack(const Instruction& i, Slot* slots);
void unpack(const Instruction& i, Slot* slots);

/// Of a type such as f32.
std::size_t bytes_of(const std::string& type);

}  // namespace ptx
