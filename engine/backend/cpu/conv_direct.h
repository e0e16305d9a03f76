#pragma once
// SPDX-License-Identifier: MIT
//
// The convolution that runs every shape: compiled by oneDNN (onednn_conv.cpp); in builds without it (no_onednn.cpp)
// a matrix product, or plain loops where there are groups.

#include "engine/backend/cpu/conv.h"

namespace ab::cpu {

void conv_direct(const Conv2dSpec& spec, ConvDirection direction, const ConvTensors& t);

}  // namespace ab::cpu
