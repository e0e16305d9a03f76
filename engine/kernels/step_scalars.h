#pragma once
// SPDX-License-Identifier: MIT
//
// The numbers that forward and backward of a training step depend on and that change from step to step. They lie in
// the memory of the device, where a step that was captured in a graph (engine/device/graph.h) reads those of its
// present step; one launch outside the graph sets them, so they travel as arguments of a kernel, without a copy.

#include "engine/core/tensor.h"
#include "engine/device/exec.h"

namespace ab {

struct StepValues {
  std::uint64_t noise_seed = 0;  ///< of dropout and drop path
  float mix_share = 1;           ///< of an image's own label (mixup, CutMix)
  float dloss = 1;               ///< where backward() starts: the micro-batch's share of the step, times the loss scale
  float unscale = 1;             ///< 1 / loss scale
};

class StepScalars {
 public:
  explicit StepScalars(Device device);
  void set(const StepValues& values) const;

  const Tensor& noise_seed() const { return noise_seed_; }  ///< [1] int64
  const Tensor& mix_share() const { return mix_share_; }    ///< [1] float32, as the others
  const Tensor& dloss() const { return dloss_; }
  const Tensor& unscale() const { return unscale_; }

 private:
  Tensor noise_seed_, mix_share_, dloss_, unscale_;
};

namespace kernels {

/// One index.
struct SetStepScalars {
  StepValues values;
  std::int64_t* noise_seed;
  float *mix_share, *dloss, *unscale;
  AB_HD void operator()(std::int64_t) const {
    *noise_seed = static_cast<std::int64_t>(values.noise_seed);
    *mix_share = values.mix_share;
    *dloss = values.dloss;
    *unscale = values.unscale;
  }
};

}  // namespace kernels
}  // namespace ab
