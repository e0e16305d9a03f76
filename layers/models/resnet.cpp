// SPDX-License-Identifier: MIT
#include <memory>
#include <numeric>

#include "engine/ops/elementwise.h"
#include "engine/ops/pool.h"
#include "layers/conv2d.h"
#include "layers/dropout.h"
#include "layers/models/models.h"
#include "layers/norm.h"

namespace ab {
namespace {

// The blocks of a ResNet (He et al. 2016): y = relu(branch(x) + shortcut(x)), with a 1×1 convolution as the
// shortcut where the shape changes.

struct ResidualBlockSpec {
  std::int64_t in = 0;     ///< channels of x
  std::int64_t width = 0;  ///< channels of the 3×3 convolutions
  std::int64_t stride = 1;
  double drop_path = 0.0;
};

/// How every block ends: y = relu(norm(branch) + shortcut(x)).
class ResidualSum {
 public:
  ResidualSum(const std::string& block, const std::string& norm, std::int64_t out, const ResidualBlockSpec& spec,
              const Build& build)
      : norm_(block + "." + norm, out, build), drop_path_(block + ".drop_path", spec.drop_path) {
    if (spec.stride == 1 && spec.in == out) return;
    shortcut_conv_ = std::make_unique<Conv2d>(block + ".downsample.0", spec.in, out, 1,
                                              Conv2dOptions{.stride = spec.stride}, false, build);
    shortcut_norm_ = std::make_unique<BatchNorm2d>(block + ".downsample.1", out, build);
  }

  Var forward(const SummedVar& branch, const Var& x) {
    const Var shortcut =
        shortcut_conv_ ? shortcut_norm_->forward(shortcut_conv_->forward_summed(x), Activation::none) : x;
    // Norm, sum and ReLU take one pass over memory, unless the branch may be dropped in between.
    if (!drop_path_.active()) return norm_.forward(branch, Activation::relu, shortcut);
    return relu(add(drop_path_.forward(norm_.forward(branch, Activation::none)), shortcut));
  }

  std::vector<Layer*> parts() {
    if (!shortcut_conv_) return {&norm_, &drop_path_};
    return {&norm_, &drop_path_, shortcut_conv_.get(), shortcut_norm_.get()};
  }

 private:
  BatchNorm2d norm_;
  DropPath drop_path_;
  std::unique_ptr<Conv2d> shortcut_conv_;
  std::unique_ptr<BatchNorm2d> shortcut_norm_;
};

/// Branch of two 3×3 convolutions, to `width` channels.
class BasicBlock final : public Composite {
 public:
  BasicBlock(const std::string& name, const ResidualBlockSpec& spec, const Build& build)
      : conv1_(name + ".conv1", spec.in, spec.width, 3, {.stride = spec.stride, .padding = 1}, false, build),
        bn1_(name + ".bn1", spec.width, build),
        conv2_(name + ".conv2", spec.width, spec.width, 3, {.padding = 1}, false, build),
        sum_(name, "bn2", spec.width, spec, build) {}

  Var forward(const Var& x) override {
    const Var y = bn1_.forward(conv1_.forward_summed(x), Activation::relu);
    return sum_.forward(conv2_.forward_summed(y), x);
  }

 private:
  std::vector<Layer*> parts() override {
    std::vector<Layer*> all{&conv1_, &bn1_, &conv2_};
    for (Layer* part : sum_.parts()) all.push_back(part);
    return all;
  }

  Conv2d conv1_;
  BatchNorm2d bn1_;
  Conv2d conv2_;
  ResidualSum sum_;
};

constexpr std::int64_t kBottleneckExpansion = 4;

/// Branch of a 1×1, a 3×3 with the stride, and a 1×1 convolution to kBottleneckExpansion · width channels.
class Bottleneck final : public Composite {
 public:
  Bottleneck(const std::string& name, const ResidualBlockSpec& spec, const Build& build)
      : conv1_(name + ".conv1", spec.in, spec.width, 1, {}, false, build),
        bn1_(name + ".bn1", spec.width, build),
        conv2_(name + ".conv2", spec.width, spec.width, 3, {.stride = spec.stride, .padding = 1}, false, build),
        bn2_(name + ".bn2", spec.width, build),
        conv3_(name + ".conv3", spec.width, kBottleneckExpansion * spec.width, 1, {}, false, build),
        sum_(name, "bn3", kBottleneckExpansion * spec.width, spec, build) {}

  Var forward(const Var& x) override {
    Var y = bn1_.forward(conv1_.forward_summed(x), Activation::relu);
    y = bn2_.forward(conv2_.forward_summed(y), Activation::relu);
    return sum_.forward(conv3_.forward_summed(y), x);
  }

 private:
  std::vector<Layer*> parts() override {
    std::vector<Layer*> all{&conv1_, &bn1_, &conv2_, &bn2_, &conv3_};
    for (Layer* part : sum_.parts()) all.push_back(part);
    return all;
  }

  Conv2d conv1_;
  BatchNorm2d bn1_;
  Conv2d conv2_;
  BatchNorm2d bn2_;
  Conv2d conv3_;
  ResidualSum sum_;
};

template <class Block>
std::unique_ptr<Layer> make_block(const std::string& name, const ResidualBlockSpec& spec, const Build& build) {
  return std::make_unique<Block>(name, spec, build);
}

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
    const auto block = plan.bottleneck ? make_block<Bottleneck> : make_block<BasicBlock>;
    std::int64_t in = plan.channels, width = plan.channels;
    for (std::size_t stage = 0; stage < plan.blocks.size(); ++stage, width *= 2) {
      for (int i = 0; i < plan.blocks[stage]; ++i) {
        const double depth = last > 0 ? static_cast<double>(blocks_.size()) / last : 1.0;
        const std::int64_t stride = stage > 0 && i == 0 ? 2 : 1;
        blocks_.push_back(
            block(fmt::format("layer{}.{}", stage + 1, i), {in, width, stride, spec.drop_path * depth}, build));
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
