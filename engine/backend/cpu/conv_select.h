#pragma once
// SPDX-License-Identifier: MIT
//
// Which convolution algorithm a shape gets: a table of rules found by measurement (bench/conv_bench.cpp),
// never by timing at run time, so that every run and every rank computes the same bits.

#include "engine/backend/cpu/conv.h"

namespace ab::cpu {

ConvAlgorithm select_conv(const Conv2dSpec& spec, ConvDirection direction);

}  // namespace ab::cpu
