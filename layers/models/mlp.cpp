// SPDX-License-Identifier: MIT
#include "engine/ops/elementwise.h"
#include "layers/linear.h"
#include "layers/models/models.h"

namespace ab {
namespace {

class Mlp final : public Composite {
 public:
  Mlp(std::int64_t inputs, std::int64_t hidden, std::int64_t classes, const Build& build)
      : fc1_("fc1", inputs, hidden, build, ParamRole::always_sync),
        fc2_("fc2", hidden, hidden, build),
        fc3_("fc3", hidden, hidden, build),
        fc4_("fc4", hidden, classes, build, ParamRole::always_sync) {}

  Var forward(const Var& x) override {
    Var y = fc1_.forward(flatten(x), Activation::relu);
    y = fc2_.forward(y, Activation::relu);
    y = fc3_.forward(y, Activation::relu);
    return fc4_.forward(y);
  }

 private:
  std::vector<Layer*> parts() override { return {&fc1_, &fc2_, &fc3_, &fc4_}; }

  Linear fc1_, fc2_, fc3_, fc4_;
};

}  // namespace

std::unique_ptr<Layer> make_mlp(const ModelSpec& spec, const Build& build) {
  return std::make_unique<Mlp>(spec.image_size * spec.image_size * 3, scaled(spec, 512), spec.classes, build);
}

}  // namespace ab
