#pragma once
// SPDX-License-Identifier: MIT
//
// What people give in place of a safetensors file, told by its first bytes.

#include <cstdint>
#include <span>
#include <string>

namespace ab {

/// So many bytes tell all formats apart.
constexpr std::size_t kTellingBytes = 4096;

/// "a checkpoint of PyTorch (.pth); convert it …" for a file that begins with `first`: its first kTellingBytes, or all it has.
/// `file`: its name, for commands. Empty when the format is not known.
std::string foreign_format(std::span<const std::uint8_t> first, const std::string& file);

}  // namespace ab
