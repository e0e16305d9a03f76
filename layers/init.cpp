// SPDX-License-Identifier: MIT
#include "layers/init.h"

#include <cmath>

#include "engine/core/random.h"
#include "engine/kernels/random.h"

namespace ab {
namespace {

/// FNV-1a: a stream of random numbers for every parameter name.
std::uint64_t stream_of(const std::string& name) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (unsigned char c : name) hash = (hash ^ c) * 0x100000001b3ull;
  return hash;
}

}  // namespace

Tensor kaiming_normal_fan_out(const Shape& shape, const std::string& name, std::uint64_t seed, Device device) {
  const double fan_out = static_cast<double>(shape[0] * shape[1] * shape[2]);
  Tensor t(shape, DType::float32, device);
  fill_normal(t, 0.0f, static_cast<float>(std::sqrt(2.0 / fan_out)), Philox{seed, stream_of(name)});
  return t;
}

Tensor uniform_fan_in(const Shape& shape, std::int64_t fan_in, const std::string& name, std::uint64_t seed, Device device) {
  const float bound = 1.0f / std::sqrt(static_cast<float>(fan_in));
  Tensor t(shape, DType::float32, device);
  fill_uniform(t, -bound, bound, Philox{seed, stream_of(name)});
  return t;
}

Tensor filled(const Shape& shape, float value, Device device) {
  return Tensor::from(std::vector<float>(static_cast<std::size_t>(shape.numel()), value), shape, device);
}

}  // namespace ab
