// SPDX-License-Identifier: MIT
#include "engine/backend/cpu/conv.h"

#include "engine/backend/cpu/conv_gemm.h"
#include "engine/backend/cpu/conv_winograd.h"
#include "engine/backend/cpu/thread_context.h"
#include "engine/core/threads.h"

namespace ab::cpu {
namespace {

bool conv_onednn(OneDnnKernel kernel, const Conv2dSpec& spec, ConvDirection direction, const ConvTensors& t) {
  ThreadContext& context = ThreadContext::current();
  OneDnnConv* conv = context.conv({spec, direction, kernel, t.bias != nullptr, compute_threads()});
  if (conv) conv->run(context, t.x, t.w, t.bias, t.y);
  return conv != nullptr;
}

}  // namespace

std::string_view name_of(ConvAlgorithm algorithm) {
  switch (algorithm) {
    case ConvAlgorithm::direct: return "direct";
    case ConvAlgorithm::winograd: return "winograd";
    case ConvAlgorithm::winograd_onednn: return "winograd_onednn";
    case ConvAlgorithm::pointwise: return "pointwise";
    case ConvAlgorithm::im2col: return "im2col";
    case ConvAlgorithm::image_matrix: return "image_matrix";
  }
  return "?";
}

bool run_conv(ConvAlgorithm algorithm, const Conv2dSpec& spec, ConvDirection direction, const ConvTensors& t) {
  switch (algorithm) {
    case ConvAlgorithm::direct: return conv_onednn(OneDnnKernel::direct, spec, direction, t);
    case ConvAlgorithm::winograd: return conv_winograd(spec, direction, t);
    case ConvAlgorithm::winograd_onednn: return conv_onednn(OneDnnKernel::winograd, spec, direction, t);
    case ConvAlgorithm::pointwise: return conv_pointwise(spec, direction, t);
    case ConvAlgorithm::im2col: return conv_im2col(spec, direction, t);
    case ConvAlgorithm::image_matrix: return conv_image_matrix(spec, direction, t);
  }
  return false;
}

}  // namespace ab::cpu
