// SPDX-License-Identifier: MIT
#include "engine/ops/elementwise.h"
#include "engine/ops/pool.h"
#include "layers/conv2d.h"
#include "layers/models/models.h"
#include "layers/norm.h"
#include "layers/whitening.h"

namespace ab {
namespace {

constexpr BatchNormOptions kNorm{.momentum = 0.4f, .epsilon = 1e-12f, .scales = false};
constexpr double kLogitScale = 1.0 / 9;

/// Two 3×3 convolutions, the first of them pooled by two, each with batch norm and GELU.
class Block final : public Composite {
 public:
  Block(const std::string& name, std::int64_t in, std::int64_t out, const Build& build)
      : conv1_(convolution(name + ".conv1", in, out, build)),
        norm1_(name + ".norm1", out, build, kNorm),
        conv2_(convolution(name + ".conv2", out, out, build)),
        norm2_(name + ".norm2", out, build, kNorm) {}

  Var forward(const Var& x) override {
    const Var pooled = max_pool2d(conv1_.forward(x), {});
    const Var y = gelu(norm1_.forward(pooled));
    return gelu(norm2_.forward(conv2_.forward_summed(y), Activation::none));
  }

 private:
  static Conv2d convolution(const std::string& name, std::int64_t in, std::int64_t out, const Build& build) {
    return {name, in, out, 3, {.padding = 1}, /*with_bias=*/false, build, ParamRole::weight, uniform_fan_in(9 * in)};
  }
  std::vector<Layer*> parts() override { return {&conv1_, &norm1_, &conv2_, &norm2_}; }

  Conv2d conv1_;
  BatchNorm2d norm1_;
  Conv2d conv2_;
  BatchNorm2d norm2_;
};

class Conv6 final : public Composite {
 public:
  Conv6(const ModelSpec& spec, const Build& build)
      : whiten_("whiten", build),
        block1_("block1", Whitening::kFilters, scaled(spec, 64), build),
        block2_("block2", scaled(spec, 64), scaled(spec, 256), build),
        block3_("block3", scaled(spec, 256), scaled(spec, 256), build),
        head_("head", scaled(spec, 256), spec.classes, 1, {}, /*with_bias=*/false, build, ParamRole::always_sync,
              uniform_fan_in(scaled(spec, 256))) {}

  Var forward(const Var& x) override {
    const Var features = block3_.forward(block2_.forward(block1_.forward(gelu(whiten_.forward(x)))));
    return scale(flatten(head_.forward(max_pool2d(features, {.kernel = 3, .stride = 3}))), kLogitScale);
  }

 private:
  std::vector<Layer*> parts() override { return {&whiten_, &block1_, &block2_, &block3_, &head_}; }

  Whitening whiten_;
  Block block1_, block2_, block3_;
  Conv2d head_;
};

}  // namespace

std::unique_ptr<Layer> make_conv6_cifar(const ModelSpec& spec, const Build& build) {
  AB_CHECK(spec.image_size == 32, "{} takes images of 32×32, not {}×{}", spec.name, spec.image_size, spec.image_size);
  return std::make_unique<Conv6>(spec, build);
}

}  // namespace ab
