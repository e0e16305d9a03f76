#pragma once
// SPDX-License-Identifier: MIT
//
// The CPU's algorithms of convolution, to be tried one after the other, by name.

#include <string_view>

#include "engine/backend/cpu/conv.h"

namespace ab::cpu {

struct NamedAlgorithm {
  std::string_view name;
  ConvAlgorithm algorithm;
};
inline constexpr NamedAlgorithm kConvAlgorithms[] = {{"direct", ConvAlgorithm::direct},
                                                     {"winograd", ConvAlgorithm::winograd},
                                                     {"pointwise", ConvAlgorithm::pointwise},
                                                     {"im2col", ConvAlgorithm::im2col},
                                                     {"image_matrix", ConvAlgorithm::image_matrix}};

inline std::string_view name_of(ConvAlgorithm algorithm) {
  return kConvAlgorithms[static_cast<std::size_t>(algorithm)].name;
}

}  // namespace ab::cpu
