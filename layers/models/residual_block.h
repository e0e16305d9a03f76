#pragma once
// SPDX-License-Identifier: MIT
//
// The blocks of a ResNet (He et al. 2016): y = relu(branch(x) + shortcut(x)), with a 1×1 convolution as the
// shortcut where the shape changes.

#include <memory>

#include "layers/conv2d.h"
#include "layers/dropout.h"
#include "layers/norm.h"

namespace ab {

struct ResidualBlockSpec {
  std::int64_t in = 0;     ///< channels of x
  std::int64_t width = 0;  ///< channels of the 3×3 convolutions
  std::int64_t stride = 1;
  double drop_path = 0.0;
  bool zero_init = false;  ///< the last norm of the branch starts at zero
};

/// Branch of two 3×3 convolutions, to `width` channels.
std::unique_ptr<Layer> make_basic_block(const std::string& name, const ResidualBlockSpec& spec, const Build& build);

/// Branch of a 1×1, a 3×3 with the stride, and a 1×1 convolution to kBottleneckExpansion · width channels.
std::unique_ptr<Layer> make_bottleneck(const std::string& name, const ResidualBlockSpec& spec, const Build& build);
inline constexpr std::int64_t kBottleneckExpansion = 4;

}  // namespace ab
