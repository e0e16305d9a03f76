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

constexpr std::int64_t kBottleneckExpansion = 4;

/// Its branch is two 3×3 convolutions to `width` channels, or, as a bottleneck, a 1×1, a 3×3 with the stride, and a 1×1 convolution
/// to kBottleneckExpansion · width channels.
class ResidualBlock final : public Composite {
 public:
  ResidualBlock(const std::string& name, const ResidualBlockSpec& spec, bool bottleneck, const Build& build)
      : drop_path_(name + ".drop_path", spec.drop_path) {
    const std::int64_t width = spec.width, out = bottleneck ? kBottleneckExpansion * width : width;
    if (bottleneck) {
      append(name, "conv1", "bn1", spec.in, width, 1, {}, build);
      append(name, "conv2", "bn2", width, width, 3, {.stride = spec.stride, .padding = 1}, build);
      append(name, "conv3", "bn3", width, out, 1, {}, build);
    } else {
      append(name, "conv1", "bn1", spec.in, width, 3, {.stride = spec.stride, .padding = 1}, build);
      append(name, "conv2", "bn2", width, width, 3, {.padding = 1}, build);
    }
    has_shortcut_ = spec.stride != 1 || spec.in != out;
    if (has_shortcut_) append(name, "downsample.0", "downsample.1", spec.in, out, 1, {.stride = spec.stride}, build);
  }

  Var forward(const Var& x) override {
    const std::size_t last = steps_.size() - (has_shortcut_ ? 2 : 1);
    Var y = x;
    for (std::size_t i = 0; i < last; ++i)
      y = steps_[i].norm->forward(steps_[i].conv->forward_summed(y), Activation::relu);
    const SummedVar branch = steps_[last].conv->forward_summed(y);
    const Var shortcut =
        has_shortcut_ ? steps_.back().norm->forward(steps_.back().conv->forward_summed(x), Activation::none) : x;
    // Norm, sum and ReLU take one pass over memory, unless the branch may be dropped in between.
    if (!drop_path_.active()) return steps_[last].norm->forward(branch, Activation::relu, shortcut);
    return relu(add(drop_path_.forward(steps_[last].norm->forward(branch, Activation::none)), shortcut));
  }

 private:
  struct Step {
    std::unique_ptr<Conv2d> conv;
    std::unique_ptr<BatchNorm2d> norm;
  };

  void append(const std::string& block, const char* conv, const char* norm, std::int64_t in, std::int64_t out,
              std::int64_t kernel, const Conv2dOptions& options, const Build& build) {
    steps_.push_back({std::make_unique<Conv2d>(block + "." + conv, in, out, kernel, options, false, build),
                      std::make_unique<BatchNorm2d>(block + "." + norm, out, build)});
  }

  std::vector<Layer*> parts() override {
    std::vector<Layer*> all{&drop_path_};
    for (const Step& step : steps_) all.insert(all.end(), {step.conv.get(), step.norm.get()});
    return all;
  }

  std::vector<Step> steps_;  // of the branch, and then of the shortcut where it is no identity
  bool has_shortcut_ = false;
  DropPath drop_path_;
};

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
    std::int64_t in = plan.channels, width = plan.channels;
    for (std::size_t stage = 0; stage < plan.blocks.size(); ++stage, width *= 2) {
      for (int i = 0; i < plan.blocks[stage]; ++i) {
        const double depth = last > 0 ? static_cast<double>(blocks_.size()) / last : 1.0;
        const std::int64_t stride = stage > 0 && i == 0 ? 2 : 1;
        blocks_.push_back(std::make_unique<ResidualBlock>(fmt::format("layer{}.{}", stage + 1, i),
                                                          ResidualBlockSpec{in, width, stride, spec.drop_path * depth},
                                                          plan.bottleneck, build));
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
  std::vector<std::unique_ptr<ResidualBlock>> blocks_;
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
