// SPDX-License-Identifier: MIT
#include "engine/kernels/diagonal.h"

#include "engine/device/exec.h"

namespace ab {
namespace {

struct ScaleColumns {
  float* t;
  const float* scale;
  std::int64_t columns;
  AB_HD void operator()(std::int64_t i) const { t[i] *= scale[i % columns]; }
};

struct ScaleRows {
  float* t;
  const float* scale;
  std::int64_t columns;
  AB_HD void operator()(std::int64_t i) const { t[i] *= scale[i / columns]; }
};

}  // namespace

void scale_columns(const Tensor& t, const Tensor& scale) {
  AB_CHECK(t.rank() == 2 && scale.numel() == t.dim(1), "scale_columns: {} factors for a matrix {}", scale.numel(), t.shape().str());
  for_each_index(t.device(), t.numel(), ScaleColumns{t.data<float>(), scale.data<float>(), t.dim(1)});
}

void scale_rows(const Tensor& t, const Tensor& scale) {
  AB_CHECK(t.rank() == 2 && scale.numel() == t.dim(0), "scale_rows: {} factors for a matrix {}", scale.numel(), t.shape().str());
  for_each_index(t.device(), t.numel(), ScaleRows{t.data<float>(), scale.data<float>(), t.dim(1)});
}

}  // namespace ab
