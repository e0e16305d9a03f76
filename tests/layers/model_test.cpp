// SPDX-License-Identifier: MIT
//
// The models: sizes that torchvision publishes, names and roles, settings, initial values, noise, and that a
// factorised layer computes what the dense one does.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "ablowrank/factorise.h"
#include "ablowrank/groups/ab_strategy.h"
#include "apps/train/build_run.h"
#include "engine/backend/backend.h"
#include "layers/models/models.h"
#include "layers/weight.h"
#include "layers/whitening.h"
#include "tests/error_message.h"
#include "tests/tensor_values.h"

namespace ab {
namespace {

using ab::test::contains;
using ab::test::message_of;

std::map<std::string, const Param*> params_by_name(Layer& model) {
  std::map<std::string, const Param*> params;
  for (const Param* p : inventory_of(model).params) params[p->name] = p;
  return params;
}

std::int64_t parameter_count(const ModelSpec& spec) {
  const auto model = make_model(spec);
  std::int64_t count = 0;
  for (const Param* p : inventory_of(*model).params) count += p->numel();
  return count;
}

struct Size {
  std::string model;
  std::int64_t classes, image_size, parameters;
};
void PrintTo(const Size& size, std::ostream* out) { *out << size.model << " with " << size.classes << " classes"; }

class ModelSize : public testing::TestWithParam<Size> {};

TEST_P(ModelSize, IsThePublishedOne) {
  const Size& size = GetParam();
  EXPECT_EQ(
      parameter_count({.name = size.model, .classes = size.classes, .image_size = size.image_size, .draw = false}),
      size.parameters);
}

INSTANTIATE_TEST_SUITE_P(
    Models, ModelSize,
    testing::Values(Size{"vgg11", 1000, 224, 132'863'336}, Size{"vgg13", 1000, 224, 133'047'848},
                    Size{"vgg16", 1000, 224, 138'357'544}, Size{"vgg19", 1000, 224, 143'667'240},
                    Size{"vgg11_bn", 1000, 224, 132'868'840}, Size{"vgg13_bn", 1000, 224, 133'053'736},
                    Size{"vgg16_bn", 1000, 224, 138'365'992}, Size{"vgg19_bn", 1000, 224, 143'678'248},
                    Size{"vgg16", 10, 32, 134'301'514}, Size{"resnet18", 1000, 224, 11'689'512},
                    Size{"resnet34", 1000, 224, 21'797'672}, Size{"resnet50", 1000, 224, 25'557'032},
                    Size{"resnet101", 1000, 224, 44'549'160}, Size{"resnet50", 10, 32, 23'528'522},
                    Size{"vit_b_16", 1000, 224, 86'567'656}, Size{"vit_s_16", 1000, 224, 22'050'664},
                    Size{"vit_ti_16", 1000, 224, 5'717'416}),
    [](const auto& info) { return fmt::format("{}_{}", info.param.model, info.param.classes); });

/// The arithmetic of RESULTS "44 : 1".
TEST(PapersVgg16, HoldsItsWeightsInTwoLayersOfTheClassifier) {
  const ModelSpec spec{.name = "vgg16", .classes = 10, .image_size = 32, .draw = false};
  const auto papers = make_model(spec);
  const auto numel = [&](const char* name) { return static_cast<double>(params_by_name(*papers).at(name)->numel()); };
  const double all = static_cast<double>(parameter_count(spec));
  const double slim = static_cast<double>(parameter_count({.name = "vgg16_bn_cifar", .draw = false}));
  const double fc1 = numel("classifier.0.weight"), fc2 = numel("classifier.3.weight");
  EXPECT_NEAR((fc1 + fc2) / all, 0.89, 0.005);
  EXPECT_NEAR(all / (all - fc1 * 48 / 49), 4.0, 0.01);  // a 1×1 map that is repeated 7×7 times is as good as once
  EXPECT_NEAR(slim / (all / 44.14), 4.84, 0.005);
}

/// A member of every family that is small enough for a test.
const std::vector<ModelSpec> kSmall{
    {.name = "mlp", .width = 0.05},       {.name = "conv6_cifar", .width = 0.125},
    {.name = "resnet20", .width = 0.5},   {.name = "vgg11_bn_cifar", .width = 0.125},
    {.name = "resnet18", .width = 0.125}, {.name = "resnet50", .width = 0.0625},
    {.name = "vgg11", .width = 0.0625},   {.name = "vgg13_bn", .width = 0.0625},
    {.name = "vit_ti_16", .width = 0.67},
};

ModelSpec small(const std::string& name) {
  return *std::find_if(kSmall.begin(), kSmall.end(), [&](const ModelSpec& spec) { return spec.name == name; });
}

/// The head of a vision transformer starts at zero, which would hide everything in front of it.
void fill_head(Layer& model) {
  for (Param* p : inventory_of(model).params)
    if (p->name == "heads.head.weight") p->value.set_value(normal_values(p->value.shape(), 9));
}

Tensor logits_of(Layer& model, const Tensor& images) {
  const NoGradScope no_grad;
  return model.forward(Var(images)).value();
}

TEST(Models, GiveLogitsForTheSizesTheyTake) {
  for (ModelSpec spec : kSmall) {
    SCOPED_TRACE(spec.name);
    for (const std::int64_t size : {32, 64}) {
      if (size == 64 && spec.name.ends_with("_cifar")) continue;
      spec.image_size = size;
      const auto model = make_model(spec);
      const Tensor logits = logits_of(*model, normal_values({2, size, size, 3}, 1));
      EXPECT_EQ(logits.shape().str(), "[2, 10]");
      for (const double v : logits.to_doubles()) EXPECT_TRUE(std::isfinite(v));
    }
  }
}

TEST(Models, SplitEverythingButTheFirstLayerAndTheClassifier) {
  const std::map<std::string, std::set<std::string>> kept{
      {"resnet50", {"conv1.weight", "fc.weight", "fc.bias"}},
      {"vgg11", {"features.0.weight", "features.0.bias", "classifier.6.weight", "classifier.6.bias"}},
      {"vit_ti_16",
       {"class_token", "encoder.pos_embedding", "conv_proj.weight", "conv_proj.bias", "heads.head.weight",
        "heads.head.bias"}},
  };
  for (const auto& [name, expected] : kept) {
    SCOPED_TRACE(name);
    const auto model = make_model(small(name));
    const Inventory inventory = inventory_of(*model);
    std::set<std::string> always_sync, matrices;
    for (const Param* p : inventory.params)
      if (p->role == ParamRole::always_sync) always_sync.insert(p->name);
    EXPECT_EQ(always_sync, expected);
    for (Weight* w : inventory.weights) {
      EXPECT_EQ(w->role() == ParamRole::weight, !expected.contains(w->name())) << w->name();
      matrices.insert(w->name());
    }
    for (const Param* p : inventory.params)
      EXPECT_EQ(p->role == ParamRole::vector, !matrices.contains(p->name) && !expected.contains(p->name)) << p->name;
  }
}

// What is not listed may be split from then on, but only if it is a matrix of a layer.
TEST(Models, LetTheListOfKeptParametersBeReplaced) {
  const auto model = make_model(small("vit_ti_16"));
  keep_at_full_rank({"conv_proj.weight"}, *model);
  const auto params = params_by_name(*model);
  EXPECT_EQ(params.at("conv_proj.weight")->role, ParamRole::always_sync);
  EXPECT_EQ(params.at("heads.head.weight")->role, ParamRole::weight);
  EXPECT_EQ(params.at("heads.head.bias")->role, ParamRole::vector);
  EXPECT_EQ(params.at("encoder.pos_embedding")->role, ParamRole::vector);
  EXPECT_EQ(params.at("class_token")->role, ParamRole::vector);
}

TEST(Models, HaveTorchvisionsNames) {
  const auto names = [](const std::string& model) {
    const auto built = make_model({.name = model, .draw = false});
    std::set<std::string> all;
    for (const auto& [name, p] : params_by_name(*built)) all.insert(name);
    return all;
  };
  const auto resnet = names("resnet50"), vgg = names("vgg16"), vgg_bn = names("vgg11_bn"), vit = names("vit_b_16");
  for (const char* name : {"conv1.weight", "bn1.bias", "layer1.0.downsample.0.weight", "layer1.0.downsample.1.weight",
                           "layer3.5.conv3.weight", "layer4.2.bn3.weight", "fc.bias"})
    EXPECT_TRUE(resnet.contains(name)) << name;
  for (const char* name : {"features.0.bias", "features.28.weight", "classifier.0.weight", "classifier.3.bias"})
    EXPECT_TRUE(vgg.contains(name)) << name;
  for (const char* name : {"features.1.weight", "features.25.bias", "features.26.weight"})
    EXPECT_TRUE(vgg_bn.contains(name)) << name;
  for (const char* name :
       {"class_token", "conv_proj.bias", "encoder.pos_embedding", "encoder.ln.weight",
        "encoder.layers.encoder_layer_0.ln_1.bias", "heads.head.weight",
        "encoder.layers.encoder_layer_3.self_attention.in_proj_weight",
        "encoder.layers.encoder_layer_3.self_attention.in_proj_bias",
        "encoder.layers.encoder_layer_3.self_attention.out_proj.weight", "encoder.layers.encoder_layer_11.mlp.0.weight",
        "encoder.layers.encoder_layer_11.mlp.3.bias"})
    EXPECT_TRUE(vit.contains(name)) << name;
}

TEST(Models, QkvBiasIsOptional) {
  ModelSpec spec = small("vit_ti_16");
  spec.draw = false;
  const std::string bias = "encoder.layers.encoder_layer_0.self_attention.in_proj_bias";
  const auto with = make_model(spec);
  EXPECT_TRUE(params_by_name(*with).contains(bias));
  spec.qkv_bias = false;
  const auto without = make_model(spec);
  EXPECT_FALSE(params_by_name(*without).contains(bias));
}

TEST(Models, RefuseSettingsTheyDoNotHave) {
  const std::vector<std::pair<ModelSpec, std::string>> wrong{
      {{.name = "mlp", .dropout = 0.5}, "mlp has no dropout"},
      {{.name = "vgg16", .drop_path = 0.1}, "vgg16 has no drop_path"},
      {{.name = "resnet50", .qkv_bias = false}, "resnet50 has no qkv_bias"},
      {{.name = "resnet18", .dropout = 1.0}, "dropout 1"},
      {{.name = "vgg16", .image_size = 16}, "vgg16 takes images of 32×32 or more"},
      {{.name = "vgg11_bn_cifar", .image_size = 64}, "takes images of 32×32"},
      {{.name = "resnet18", .width = 0.001}, "leaves nothing"},
      {{.name = "vit_b_16", .image_size = 40}, "multiple of 16, not 40×40"},
      {{.name = "resnet9"}, "there is no model 'resnet9'"},
  };
  for (auto [spec, message] : wrong) {
    spec.draw = false;
    const std::string got = message_of(ErrorKind::config, [&, spec = spec] { make_model(spec); });
    EXPECT_TRUE(contains(got, message)) << got;
  }
}

/// Gives every weight that may be split factors of full rank: the same matrices.
void factorise_at_full_rank(Layer& model) {
  for (Weight* weight : inventory_of(model).weights) {
    if (weight->role() != ParamRole::weight) continue;
    const LowRank low_rank = decompose(weight->matrix(), nullptr);
    const FactorPair factors = apply_gauge(low_rank, Gauge::split_sigma, true);
    weight->factorise(factors.outer, factors.inner, Weight::Mode::train_b);
    weight->set_execution(Execution::factors);
  }
}

TEST(Models, ComputeTheSameWithFactorsOfFullRank) {
  for (const ModelSpec& spec : kSmall) {
    SCOPED_TRACE(spec.name);
    const auto model = make_model(spec);
    fill_head(*model);
    model->set_training(false);  // statistics of a few values would magnify rounding
    const Tensor images = normal_values({2, 32, 32, 3}, 2);
    const Tensor dense = logits_of(*model, images);
    factorise_at_full_rank(*model);
    EXPECT_LT(relative_error(logits_of(*model, images), dense), 1e-4);
  }
}

TEST(Models, DrawTheSameForTheSameSeedAndOtherwiseNot) {
  for (ModelSpec spec : kSmall) {
    SCOPED_TRACE(spec.name);
    const auto first = make_model(spec), again = make_model(spec);
    spec.seed = 1;
    const auto other = make_model(spec);
    const auto a = params_by_name(*first), b = params_by_name(*again), c = params_by_name(*other);
    bool differs = false;
    for (const auto& [name, p] : a) {
      EXPECT_EQ(p->value.value().to_doubles(), b.at(name)->value.value().to_doubles()) << name;
      differs |= p->value.value().to_doubles() != c.at(name)->value.value().to_doubles();
    }
    EXPECT_TRUE(differs);
  }
}

// Dropout and drop path: the same seed gives the same pass, another seed another one, and evaluation has none.
TEST(Noise, IsAFunctionOfTheSeed) {
  for (const char* name : {"vgg11", "resnet20", "resnet50", "vit_ti_16"}) {
    ModelSpec spec = small(name);
    spec.dropout = 0.5;
    if (spec.name != "vgg11") spec.drop_path = 0.5;
    SCOPED_TRACE(name);
    const auto noisy = make_model(spec);
    spec.dropout = spec.drop_path = 0;
    const auto plain = make_model(spec);
    fill_head(*noisy), fill_head(*plain);
    const Tensor images = normal_values({4, 32, 32, 3}, 3);
    const auto noisy_logits = [&](std::int64_t seed) {
      noisy->set_noise(Tensor::from(std::vector{seed}, {1}));
      return logits_of(*noisy, images).to_doubles();
    };
    const auto first = noisy_logits(1);
    EXPECT_EQ(noisy_logits(1), first);
    EXPECT_NE(noisy_logits(2), first);
    EXPECT_NE(logits_of(*plain, images).to_doubles(), first);
  }
}

TEST(Noise, IsOffInEvaluation) {
  ModelSpec spec = small("vgg11");
  const auto plain = make_model(spec);
  spec.dropout = 0.5;
  const auto noisy = make_model(spec);
  plain->set_training(false);
  noisy->set_training(false);
  const Tensor images = normal_values({2, 32, 32, 3}, 4);
  EXPECT_EQ(logits_of(*noisy, images).to_doubles(), logits_of(*plain, images).to_doubles());
}

std::vector<double> singular_values(const Tensor& weight) {
  return decompose(weight.view({weight.dim(0), -1}), nullptr).sigma.to_doubles();
}

const std::vector<std::string> kMatrices{"conv1.weight", "layer2.0.conv1.weight", "layer3.0.downsample.0.weight",
                                         "fc.weight"};

TEST(Init, OrthoMakesSingularValuesOne) {
  ModelSpec spec = small("resnet18");
  spec.init = Init::ortho;
  const auto model = make_model(spec);
  for (const std::string& name : kMatrices)
    for (const double s : singular_values(params_by_name(*model).at(name)->value.value()))
      EXPECT_NEAR(s, 1.0, 1e-4) << name;
}

TEST(Init, DiracPassesTheFirstChannelsOn) {
  ModelSpec spec = small("resnet18");
  const auto drawn = make_model(spec);
  spec.init = Init::dirac;
  const auto model = make_model(spec);
  for (const auto& [name, param] : params_by_name(*model)) {
    const std::vector<double> value = param->value.value().to_doubles();
    const std::vector<double> before = params_by_name(*drawn).at(name)->value.value().to_doubles();
    const Shape& s = param->value.shape();
    const bool changes = s.rank() == 4 && s[1] == 3 && param->role == ParamRole::weight;
    for (std::int64_t i = 0; i < std::ssize(value); ++i) {
      const std::int64_t output = changes ? i / (9 * s[3]) : 0, position = changes ? i / s[3] % 9 : 0;
      const double expected = !changes || output >= s[3] ? before[static_cast<std::size_t>(i)]
                              : position == 4            ? static_cast<double>(i % s[3] == output)
                                                         : 0.0;
      ASSERT_EQ(value[static_cast<std::size_t>(i)], expected) << name << ' ' << i;
    }
  }
}

/// Patches of neighbouring values, so that their moments are far from the identity's.
Tensor smooth_images() {
  const Tensor images = normal_values({40, 9, 7, 3}, 6);
  for (std::int64_t i = 3; i < images.numel(); ++i)
    images.data<float>()[i] = 0.5f * images.data<float>()[i] + images.data<float>()[i - 3] * 0.8f;
  return images;
}

TEST(Whitening, OutputsHaveTheIdentityAsMoments) {
  Whitening layer("whiten", {});
  const Tensor images = smooth_images();
  layer.fit(images);
  const Tensor y = layer.forward(Var(images)).value();
  ASSERT_EQ(y.shape(), (Shape{40, 8, 6, 24}));
  const std::vector<double> values = y.to_doubles();
  for (std::size_t i = 0; i < 24; ++i)
    for (std::size_t j = 0; j < 24; ++j) {
      double moment = 0;
      for (std::size_t p = 0; p < values.size(); p += 24) moment += values[p + i] * values[p + j];
      moment /= static_cast<double>(values.size() / 24);
      EXPECT_NEAR(moment, i == j ? 1 : i % 12 == j % 12 ? -1 : 0, 0.02) << i << ' ' << j;
    }
}

TEST(Init, DiracWithoutA3x3ConvolutionIsRefused) {
  EXPECT_TRUE(contains(message_of(ErrorKind::config, [] { make_model({.name = "mlp", .init = Init::dirac}); }),
                       "mlp has no 3×3 convolution behind its first layer"));
}

TEST(Whitening, IsNotTrained) {
  const auto model = make_model({.name = "conv6_cifar"});
  const Inventory inventory = inventory_of(*model);
  std::int64_t trained = 0;
  for (const Param* p : inventory.params) trained += p->numel();
  // Of the published network's, less those of whitening: filters and a bias, and less the weights of batch norms, fixed at one.
  EXPECT_EQ(trained, 1972792 - 24 * 13 - 2 * (64 + 256 + 256));
  ASSERT_EQ(inventory.whitenings.size(), 1u);
  EXPECT_EQ(inventory.buffers.front().name, "whiten.weight");
}

}  // namespace
}  // namespace ab
