// SPDX-License-Identifier: MIT
#include <numeric>

#include "engine/ops/pool.h"
#include "layers/models/models.h"
#include "layers/models/residual_block.h"

namespace ab {
namespace {

struct ResNetPlan {
  std::vector<int> blocks = {};  ///< per stage; every stage but the first halves the image and doubles the channels
  std::int64_t channels = 0;     ///< of the stem and of the first stage's 3×3 convolutions
  bool imagenet_stem = false;    ///< 7×7 with stride 2 and max pooling, instead of 3×3
  bool bottleneck = false;

  std::int64_t expansion() const { return bottleneck ? kBottleneckExpansion : 1; }
  std::int64_t out_channels() const { return expansion() * (channels << (blocks.size() - 1)); }
};

class ResNet final : public Composite {
 public:
  ResNet(const ResNetPlan& plan, const ModelSpec& spec, const Build& build)
      : pool_after_stem_(plan.imagenet_stem),
        conv1_("conv1", 3, plan.channels, plan.imagenet_stem ? 7 : 3,
               plan.imagenet_stem ? Conv2dOptions{.stride = 2, .padding = 3} : Conv2dOptions{.padding = 1}, false,
               build, ParamRole::always_sync),
        bn1_("bn1", plan.channels, build),
        dropout_("dropout", spec.dropout),
        fc_("fc", plan.out_channels(), spec.classes, build, ParamRole::always_sync) {
    add_blocks(plan, spec, build);
  }

  Var forward(const Var& x) override {
    Var y = bn1_.forward(conv1_.forward_summed(x), Activation::relu);
    if (pool_after_stem_) y = max_pool2d(y, {.kernel = 3, .stride = 2, .padding = 1});
    for (const auto& block : blocks_) y = block->forward(y);
    return fc_.forward(dropout_.forward(global_avg_pool2d(y)));
  }

 private:
  void add_blocks(const ResNetPlan& plan, const ModelSpec& spec, const Build& build) {
    const int last = std::accumulate(plan.blocks.begin(), plan.blocks.end(), 0) - 1;
    const auto make_block = plan.bottleneck ? make_bottleneck : make_basic_block;
    std::int64_t in = plan.channels, width = plan.channels;
    for (std::size_t stage = 0; stage < plan.blocks.size(); ++stage, width *= 2) {
      for (int i = 0; i < plan.blocks[stage]; ++i) {
        const double depth = last > 0 ? static_cast<double>(blocks_.size()) / last : 1.0;
        const std::int64_t stride = stage > 0 && i == 0 ? 2 : 1;
        blocks_.push_back(make_block(fmt::format("layer{}.{}", stage + 1, i),
                                     {in, width, stride, spec.drop_path * depth, spec.zero_init_residual}, build));
        in = plan.expansion() * width;
      }
    }
  }

  std::vector<Layer*> parts() override {
    std::vector<Layer*> all{&conv1_, &bn1_};
    for (const auto& block : blocks_) all.push_back(block.get());
    all.insert(all.end(), {&dropout_, &fc_});
    return all;
  }

  bool pool_after_stem_;
  Conv2d conv1_;
  BatchNorm2d bn1_;
  std::vector<std::unique_ptr<Layer>> blocks_;
  Dropout dropout_;
  Linear fc_;
};

}  // namespace

std::unique_ptr<Layer> make_resnet_cifar(int depth, const ModelSpec& spec, const Build& build) {
  AB_CHECK(depth >= 8 && (depth - 2) % 6 == 0, "a CIFAR ResNet has 6n + 2 layers, not {}", depth);
  const ResNetPlan plan{.blocks = std::vector<int>(3, (depth - 2) / 6), .channels = scaled(spec, 16)};
  return std::make_unique<ResNet>(plan, spec, build);
}

std::unique_ptr<Layer> make_resnet(int depth, const ModelSpec& spec, const Build& build) {
  ResNetPlan plan{.channels = scaled(spec, 64), .imagenet_stem = true, .bottleneck = depth >= 50};
  switch (depth) {
    case 18: plan.blocks = {2, 2, 2, 2}; break;
    case 34:
    case 50: plan.blocks = {3, 4, 6, 3}; break;
    case 101: plan.blocks = {3, 4, 23, 3}; break;
    default:
      throw Error(ErrorKind::config, fmt::format("there is no ResNet with {} layers; choose 18, 34, 50 or 101", depth));
  }
  return std::make_unique<ResNet>(plan, spec, build);
}

}  // namespace ab
