// SPDX-License-Identifier: MIT
#include "layers/models/residual_block.h"

#include "engine/ops/activation.h"

namespace ab {
namespace {

/// How every block ends: y = relu(norm(branch) + shortcut(x)).
class ResidualSum {
 public:
  ResidualSum(const std::string& block, const std::string& norm, std::int64_t out, const ResidualBlockSpec& spec,
              const Build& build)
      : norm_(block + "." + norm, out, build, spec.zero_init ? 0.0f : 1.0f),
        drop_path_(block + ".drop_path", spec.drop_path) {
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

}  // namespace

std::unique_ptr<Layer> make_basic_block(const std::string& name, const ResidualBlockSpec& spec, const Build& build) {
  return std::make_unique<BasicBlock>(name, spec, build);
}

std::unique_ptr<Layer> make_bottleneck(const std::string& name, const ResidualBlockSpec& spec, const Build& build) {
  return std::make_unique<Bottleneck>(name, spec, build);
}

}  // namespace ab
