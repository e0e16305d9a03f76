#pragma once
// SPDX-License-Identifier: MIT
//
// Weights, images and labels by formula, so that no fixture has to carry them. formula_init.py is the twin.
//   bits(name, i)    = splitmix64 number i of the sequence seeded with the FNV-1a hash of `name`
//   uniform in [-1, 1) = its upper 24 bits, exact in float32
// Every later operation is one correctly rounded operation, so both languages produce the same bits.

#include <cmath>
#include <cstdint>
#include <string_view>

#include "engine/core/tensor.h"

namespace ab::golden {

/// FNV-1a, 64 bits.
inline std::uint64_t name_hash(std::string_view name) {
  std::uint64_t h = 0xCBF29CE484222325u;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  return h;
}

/// Number i of the sequence with that seed.
inline std::uint64_t bits(std::uint64_t seed, std::int64_t i) {
  std::uint64_t z = seed + static_cast<std::uint64_t>(i + 1) * 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/// float32 in [-1, 1) times `scale`, in row-major order of `shape`.
inline Tensor uniform(std::string_view name, const Shape& shape, float scale = 1.0f) {
  const Tensor t(shape);
  const std::uint64_t seed = name_hash(name);
  std::int64_t i = 0;
  for (float& v : t.span<float>()) v = (static_cast<float>(bits(seed, i++) >> 40) * 0x1p-23f - 1.0f) * scale;
  return t;
}

/// The initial value of a parameter.
/// Matrices and convolutions: uniform · sqrt(6 / fan_in). Vectors: 1 for a norm's weight, 0 for a bias.
inline Tensor parameter(std::string_view name, const Shape& shape) {
  if (shape.rank() > 1) {
    const double fan_in = static_cast<double>(shape.numel() / shape[0]);
    return uniform(name, shape, static_cast<float>(std::sqrt(6.0 / fan_in)));
  }
  const Tensor t(shape);
  for (float& v : t.span<float>()) v = name.ends_with("weight") ? 1.0f : 0.0f;
  return t;
}

/// [batch, size, size, 3]
inline Tensor images(std::int64_t batch, std::int64_t size) { return uniform("images", {batch, size, size, 3}); }

/// [batch] int64 in [0, classes)
inline Tensor labels(std::int64_t batch, std::int64_t classes) {
  const Tensor t({batch}, DType::int64);
  const std::uint64_t seed = name_hash("labels");
  std::int64_t i = 0;
  for (std::int64_t& v : t.span<std::int64_t>()) v = static_cast<std::int64_t>(bits(seed, i++) >> 33) % classes;
  return t;
}

}  // namespace ab::golden
