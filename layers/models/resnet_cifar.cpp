// SPDX-License-Identifier: MIT
#include "engine/ops/pool.h"
#include "layers/conv2d.h"
#include "layers/models/models.h"
#include "layers/norm.h"

namespace ab {
namespace {

/// y = relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x))
class BasicBlock {
 public:
  BasicBlock(const std::string& name, std::int64_t in, std::int64_t out, std::int64_t stride, const Build& build)
      : conv1_(name + ".conv1", in, out, 3, {.stride = stride, .padding = 1}, false, build),
        bn1_(name + ".bn1", out, build),
        conv2_(name + ".conv2", out, out, 3, {.padding = 1}, false, build),
        bn2_(name + ".bn2", out, build) {
    if (stride == 1 && in == out) return;
    shortcut_conv_ = std::make_unique<Conv2d>(name + ".downsample.0", in, out, 1, Conv2dOptions{.stride = stride}, false, build);
    shortcut_bn_ = std::make_unique<BatchNorm2d>(name + ".downsample.1", out, build);
  }

  Var forward(const Var& x) {
    const Var shortcut = shortcut_conv_ ? shortcut_bn_->forward(shortcut_conv_->forward(x)) : x;
    const Var y = bn1_.forward(conv1_.forward(x), Activation::relu);
    return bn2_.forward(conv2_.forward(y), Activation::relu, shortcut);
  }

  template <class Visit> void for_each_layer(Visit&& visit) {
    visit(conv1_), visit(bn1_), visit(conv2_), visit(bn2_);
    if (shortcut_conv_) visit(*shortcut_conv_), visit(*shortcut_bn_);
  }

 private:
  Conv2d conv1_;
  BatchNorm2d bn1_;
  Conv2d conv2_;
  BatchNorm2d bn2_;
  std::unique_ptr<Conv2d> shortcut_conv_;
  std::unique_ptr<BatchNorm2d> shortcut_bn_;
};

class ResNetCifar final : public Layer {
 public:
  ResNetCifar(int blocks_per_stage, std::int64_t classes, const Build& build)
      : conv1_("conv1", 3, 16, 3, {.padding = 1}, false, build, ParamRole::always_sync),
        bn1_("bn1", 16, build),
        fc_("fc", 64, classes, build, ParamRole::always_sync) {
    std::int64_t in = 16;
    for (int stage = 1; stage <= 3; ++stage) {
      const std::int64_t out = std::int64_t{8} << stage;
      for (int i = 0; i < blocks_per_stage; ++i) {
        const std::int64_t stride = stage > 1 && i == 0 ? 2 : 1;
        blocks_.push_back(std::make_unique<BasicBlock>(fmt::format("layer{}.{}", stage, i), in, out, stride, build));
        in = out;
      }
    }
  }

  Var forward(const Var& x) override {
    Var y = bn1_.forward(conv1_.forward(x), Activation::relu);
    for (const auto& block : blocks_) y = block->forward(y);
    return fc_.forward(global_avg_pool2d(y));
  }

  void list(Inventory& inventory) override {
    for_each_layer([&](Layer& layer) { layer.list(inventory); });
  }

  void set_training(bool on) override {
    for_each_layer([&](Layer& layer) { layer.set_training(on); });
  }

 private:
  template <class Visit> void for_each_layer(Visit&& visit) {
    visit(conv1_), visit(bn1_);
    for (const auto& block : blocks_) block->for_each_layer(visit);
    visit(fc_);
  }

  Conv2d conv1_;
  BatchNorm2d bn1_;
  std::vector<std::unique_ptr<BasicBlock>> blocks_;
  Linear fc_;
};

}  // namespace

std::unique_ptr<Layer> make_resnet_cifar(int depth, std::int64_t classes, const Build& build) {
  AB_CHECK(depth >= 8 && (depth - 2) % 6 == 0, "a CIFAR ResNet has 6n + 2 layers, not {}", depth);
  return std::make_unique<ResNetCifar>((depth - 2) / 6, classes, build);
}

}  // namespace ab
