// SPDX-License-Identifier: MIT
#include "engine/kernels/step_scalars.h"

namespace ab {

StepScalars::StepScalars(Device device)
    : noise_seed_({1}, DType::int64, device),
      mix_share_({1}, DType::float32, device),
      dloss_({1}, DType::float32, device),
      unscale_({1}, DType::float32, device) {}

void StepScalars::set(const StepValues& values) const {
  for_each_index(noise_seed_.device(), 1,
                 kernels::SetStepScalars{values, noise_seed_.data<std::int64_t>(), mix_share_.data<float>(),
                                         dloss_.data<float>(), unscale_.data<float>()});
}

}  // namespace ab
