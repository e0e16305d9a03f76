// SPDX-License-Identifier: MIT
#include "engine/ops/pool.h"
#include "engine/ops/shape.h"
#include "layers/conv2d.h"
#include "layers/models/models.h"
#include "layers/norm.h"

namespace ab {
namespace {

constexpr int kPool = 0;
const std::vector<int> kVgg11{64, kPool, 128, kPool, 256, 256, kPool, 512, 512, kPool, 512, 512, kPool};
const std::vector<int> kVgg16{64,  64,  kPool, 128, 128, kPool, 256, 256,   256,
                              kPool, 512, 512, 512, kPool, 512, 512, 512, kPool};

class VggCifar final : public Layer {
 public:
  VggCifar(const std::vector<int>& plan, std::int64_t classes, const Build& build)
      : classifier_("classifier", 512, classes, build, ParamRole::always_sync) {
    // torchvision counts convolution, norm, ReLU and pooling as one index each.
    int index = 0;
    std::int64_t in = 3;
    for (int width : plan) {
      if (width == kPool) {
        stages_.push_back({});
        index += 1;
        continue;
      }
      const ParamRole role = index == 0 ? ParamRole::always_sync : ParamRole::weight;
      stages_.push_back({std::make_unique<Conv2d>(fmt::format("features.{}", index), in, width, 3,
                                                  Conv2dOptions{.padding = 1}, true, build, role),
                         std::make_unique<BatchNorm2d>(fmt::format("features.{}", index + 1), width, build)});
      index += 3;
      in = width;
    }
  }

  Var forward(const Var& x) override {
    Var y = x;
    for (const Stage& stage : stages_)
      y = stage.conv ? stage.norm->forward(stage.conv->forward(y), Activation::relu) : max_pool2d(y, {});
    return classifier_.forward(flatten(y));
  }

  void list(Inventory& inventory) override {
    for_each_layer([&](Layer& layer) { layer.list(inventory); });
  }

  void set_training(bool on) override {
    for_each_layer([&](Layer& layer) { layer.set_training(on); });
  }

 private:
  /// A convolution with its norm, or, without them, a pooling by two.
  struct Stage {
    std::unique_ptr<Conv2d> conv;
    std::unique_ptr<BatchNorm2d> norm;
  };

  template <class Visit> void for_each_layer(Visit&& visit) {
    for (Stage& stage : stages_)
      if (stage.conv) visit(*stage.conv), visit(*stage.norm);
    visit(classifier_);
  }

  std::vector<Stage> stages_;
  Linear classifier_;
};

}  // namespace

std::unique_ptr<Layer> make_vgg_bn_cifar(int layers, std::int64_t classes, const Build& build) {
  AB_CHECK(layers == 11 || layers == 16, "there is no VGG with {} layers here; 11 and 16 are", layers);
  return std::make_unique<VggCifar>(layers == 11 ? kVgg11 : kVgg16, classes, build);
}

}  // namespace ab
