// SPDX-License-Identifier: MIT
#include "layers/init.h"

#include <cmath>

#include "engine/kernels/elementwise.h"
#include "engine/kernels/random.h"

namespace ab {

Distribution kaiming_normal_fan_out(const Shape& shape) {
  return {Distribution::Kind::normal, std::sqrt(2.0 / static_cast<double>(shape[0] * shape[1] * shape[2]))};
}

Distribution uniform_fan_in(std::int64_t fan_in) {
  return {Distribution::Kind::uniform, 1.0 / std::sqrt(static_cast<double>(fan_in))};
}

Distribution xavier_uniform(std::int64_t fan_in, std::int64_t fan_out) {
  return {Distribution::Kind::uniform, std::sqrt(6.0 / static_cast<double>(fan_in + fan_out))};
}

Tensor initial_value(const std::string& name, const Shape& shape, const Distribution& from, const Build& build) {
  const Tensor t(shape, DType::float32, build.device);
  const Philox random{build.seed, stream_of(name)};
  if (from.kind == Distribution::Kind::constant) fill(t, from.scale);
  else if (!build.draw) return t;
  else if (from.kind == Distribution::Kind::normal) fill_normal(t, 0.0, from.scale, random);
  else fill_uniform(t, -from.scale, from.scale, random);
  return t;
}

Tensor filled(const Shape& shape, float value, Device device) {
  const Tensor t(shape, DType::float32, device);
  fill(t, value);
  return t;
}

}  // namespace ab
