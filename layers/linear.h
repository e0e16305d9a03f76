#pragma once
// SPDX-License-Identifier: MIT

#include "layers/layer.h"
#include "layers/weight.h"

namespace ab {

/// How layers are built: one seed and one device for a whole model.
struct Build {
  std::uint64_t seed = 0;
  Device device;
};

/// y = x Wᵀ + b      x: [N, in], W: [out, in] (or its factors), b: [out]
class Linear final : public Layer {
 public:
  Linear(const std::string& name, std::int64_t in, std::int64_t out, const Build& build,
         ParamRole role = ParamRole::weight);
  Var forward(const Var& x) override;
  void list(Inventory& inventory) override;

 private:
  Weight weight_;
  Param bias_;
};

}  // namespace ab
