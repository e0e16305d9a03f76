// SPDX-License-Identifier: MIT
#include "engine/ops/elementwise.h"
#include "engine/ops/pool.h"
#include "layers/conv2d.h"
#include "layers/dropout.h"
#include "layers/models/models.h"
#include "layers/norm.h"

namespace ab {
namespace {

/// Convolutions of each of the five stages; every stage ends with a pooling by two.
std::vector<int> convolutions_per_stage(int layers) {
  switch (layers) {
    case 11: return {1, 1, 2, 2, 2};
    case 13: return {2, 2, 2, 2, 2};
    case 16: return {2, 2, 3, 3, 3};
    case 19: return {2, 2, 4, 4, 4};
    default:
      throw Error(ErrorKind::config, fmt::format("there is no VGG with {} layers; choose 11, 13, 16 or 19", layers));
  }
}
constexpr std::int64_t kStageChannels[] = {64, 128, 256, 512, 512};
constexpr std::int64_t kFeatures = 512, kHidden = 4096, kPooled = 7;

/// 3×3 convolutions with ReLU, pooled by two after every stage: [N, H, W, 3] -> [N, H / 32, W / 32, 512]
class VggFeatures final : public Composite {
 public:
  VggFeatures(int layers, bool batch_norm, const ModelSpec& spec, const Build& build) {
    // torchvision counts convolution, norm, ReLU and pooling as one index each.
    int index = 0;
    std::int64_t in = 3;
    const std::vector<int> counts = convolutions_per_stage(layers);
    for (std::size_t stage = 0; stage < counts.size(); ++stage) {
      const std::int64_t out = scaled(spec, kStageChannels[stage]);
      for (int i = 0; i < counts[stage]; ++i) {
        const ParamRole role = index == 0 ? ParamRole::always_sync : ParamRole::weight;
        const std::string name = fmt::format("features.{}", index++);
        Step step;
        step.conv = std::make_unique<Conv2d>(name, in, out, 3, Conv2dOptions{.padding = 1}, true, build, role);
        if (batch_norm) step.norm = std::make_unique<BatchNorm2d>(fmt::format("features.{}", index++), out, build);
        step.pool = i + 1 == counts[stage];
        index += step.pool ? 2 : 1;
        steps_.push_back(std::move(step));
        in = out;
      }
    }
  }

  Var forward(const Var& x) override {
    Var y = x;
    for (const Step& step : steps_) {
      y = step.norm ? step.norm->forward(step.conv->forward_summed(y), Activation::relu)
                    : step.conv->forward(y, Activation::relu);
      if (step.pool) y = max_pool2d(y, {});
    }
    return y;
  }

 private:
  struct Step {
    std::unique_ptr<Conv2d> conv;
    std::unique_ptr<BatchNorm2d> norm;  ///< may be absent
    bool pool = false;
  };

  std::vector<Layer*> parts() override {
    std::vector<Layer*> all;
    for (const Step& step : steps_) {
      all.push_back(step.conv.get());
      if (step.norm) all.push_back(step.norm.get());
    }
    return all;
  }

  std::vector<Step> steps_;
};

class VggCifar final : public Composite {
 public:
  VggCifar(int layers, const ModelSpec& spec, const Build& build)
      : features_(layers, true, spec, build),
        dropout_("dropout", spec.dropout),
        classifier_("classifier", scaled(spec, kFeatures), spec.classes, build, ParamRole::always_sync) {}

  Var forward(const Var& x) override { return classifier_.forward(dropout_.forward(flatten(features_.forward(x)))); }

 private:
  std::vector<Layer*> parts() override { return {&features_, &dropout_, &classifier_}; }

  VggFeatures features_;
  Dropout dropout_;
  Linear classifier_;
};

// torchvision draws all three layers of the classifier like this.
constexpr Distribution kClassifierInit{Distribution::Kind::normal, 0.01};

class Vgg final : public Composite {
 public:
  Vgg(int layers, bool batch_norm, const ModelSpec& spec, const Build& build)
      : features_(layers, batch_norm, spec, build),
        conv0_("classifier.0", scaled(spec, kFeatures), scaled(spec, kHidden), kPooled, {}, true, build,
               ParamRole::weight, kClassifierInit),
        dropout2_("classifier.2", spec.dropout),
        conv3_("classifier.3", scaled(spec, kHidden), scaled(spec, kHidden), 1, {}, true, build, ParamRole::weight,
               kClassifierInit),
        dropout5_("classifier.5", spec.dropout),
        linear6_("classifier.6", scaled(spec, kHidden), spec.classes, build, ParamRole::always_sync,
                 LinearInit{.weight = kClassifierInit, .bias = {}}) {}

  Var forward(const Var& x) override {
    Var y = adaptive_avg_pool2d(features_.forward(x), kPooled, kPooled);
    y = dropout2_.forward(conv0_.forward(y, Activation::relu));
    y = dropout5_.forward(conv3_.forward(y, Activation::relu));
    return linear6_.forward(flatten(y));
  }

 private:
  std::vector<Layer*> parts() override { return {&features_, &conv0_, &dropout2_, &conv3_, &dropout5_, &linear6_}; }

  VggFeatures features_;
  Conv2d conv0_;
  Dropout dropout2_;
  Conv2d conv3_;
  Dropout dropout5_;
  Linear linear6_;
};

}  // namespace

std::unique_ptr<Layer> make_vgg_bn_cifar(int layers, const ModelSpec& spec, const Build& build) {
  AB_CHECK(spec.image_size == 32, "{} takes images of 32×32, not {}×{}", spec.name, spec.image_size, spec.image_size);
  return std::make_unique<VggCifar>(layers, spec, build);
}

std::unique_ptr<Layer> make_vgg(int layers, bool batch_norm, const ModelSpec& spec, const Build& build) {
  AB_CHECK(spec.image_size >= 32, "{} takes images of 32×32 or more, not {}×{}", spec.name, spec.image_size,
           spec.image_size);
  return std::make_unique<Vgg>(layers, batch_norm, spec, build);
}

}  // namespace ab
