#pragma once
// SPDX-License-Identifier: MIT
//
// Initial values, drawn from (seed, parameter name): independent of the order in which layers are built.

#include <string>

#include "engine/core/tensor.h"

namespace ab {

/// Normal with standard deviation sqrt(2 / fan_out), fan_out = O · kh · kw (He et al. 2015): convolutions
/// before a ReLU, as torchvision's ResNet and VGG.   shape: [O, kh, kw, I]
Tensor kaiming_normal_fan_out(const Shape& shape, const std::string& name, std::uint64_t seed, Device device);
/// Uniform in ±1/sqrt(fan_in): PyTorch's default for linear weights and biases.
Tensor uniform_fan_in(const Shape& shape, std::int64_t fan_in, const std::string& name, std::uint64_t seed, Device device);
Tensor filled(const Shape& shape, float value, Device device);

}  // namespace ab
