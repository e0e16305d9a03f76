// SPDX-License-Identifier: MIT
#include "engine/backend/cpu/conv.h"

#include "engine/backend/cpu/conv_direct.h"
#include "engine/backend/cpu/conv_gemm.h"
#include "engine/backend/cpu/conv_winograd.h"

namespace ab::cpu {

std::string_view name_of(ConvAlgorithm algorithm) {
  switch (algorithm) {
    case ConvAlgorithm::direct: return "direct";
    case ConvAlgorithm::winograd: return "winograd";
    case ConvAlgorithm::pointwise: return "pointwise";
    case ConvAlgorithm::im2col: return "im2col";
    case ConvAlgorithm::image_matrix: return "image_matrix";
  }
  return "?";
}

std::size_t conv_scratch_bytes(ConvAlgorithm algorithm, const Conv2dSpec& spec, ConvDirection direction) {
  switch (algorithm) {
    case ConvAlgorithm::winograd: return winograd_scratch_bytes(spec, direction);
    case ConvAlgorithm::im2col: return im2col_scratch_bytes(spec);
    case ConvAlgorithm::image_matrix: return image_matrix_scratch_bytes(spec);
    case ConvAlgorithm::direct:
    case ConvAlgorithm::pointwise: break;
  }
  return 0;
}

bool run_conv(ConvAlgorithm algorithm, const Conv2dSpec& spec, ConvDirection direction, const ConvTensors& t) {
  switch (algorithm) {
    case ConvAlgorithm::direct: conv_direct(spec, direction, t); return true;
    case ConvAlgorithm::winograd: return conv_winograd(spec, direction, t);
    case ConvAlgorithm::pointwise: return conv_pointwise(spec, direction, t);
    case ConvAlgorithm::im2col: return conv_im2col(spec, direction, t);
    case ConvAlgorithm::image_matrix: return conv_image_matrix(spec, direction, t);
  }
  return false;
}

}  // namespace ab::cpu
