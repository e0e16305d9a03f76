#pragma once
// SPDX-License-Identifier: MIT
//
// safetensors, the file format of model weights (https://github.com/huggingface/safetensors):
//   u64 little-endian N · N bytes of JSON · data
//   JSON: {"__metadata__": {string: string}, name: {"dtype": "F32", "shape": [..], "data_offsets": [begin,
//   end]}}
// Offsets count from the start of the data; tensors lie there in C order without a hole or an overlap.
// A file comes from anywhere, so nothing in it is believed: the header is checked completely before a tensor
// is allocated, every product is checked for overflow, and the file is read, never mapped.

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine/core/tensor.h"

namespace ab {

struct NamedTensor {
  std::string name;
  Tensor value;
};

/// A tensor that the format allows and no Tensor holds: of integers other than int64 and uint8, truth values, 8 bits and
/// less, or more dimensions. Its data is not read.
struct UnreadTensor {
  std::string name;
  std::string reason;  ///< "has dtype I32"
};

/// The content of a file; tensors in host memory.
struct TensorFile {
  std::map<std::string, std::string> metadata;
  std::vector<NamedTensor> tensors;
  std::vector<UnreadTensor> unread = {};

  /// The tensor of that name, or nullptr.
  const Tensor* find(const std::string& name) const;
};

/// A complete file in memory.
TensorFile parse_safetensors(std::span<const std::uint8_t> bytes, const std::string& file);

/// Reads a file. Throws Error(checkpoint), which names the format where the file is of another.
TensorFile read_safetensors(const std::string& path);

/// Writes a file atomically (see atomic_file.h), tensors ordered by alignment, then by name. Tensors may be
/// on any device. Throws Error(checkpoint) when the disk does not take it, Error(config) for a name twice.
void write_safetensors(const std::string& path, const TensorFile& content);

}  // namespace ab
