// SPDX-License-Identifier: MIT
//
// Models as files: what is saved is built again and computes the same under either library's names, factors
// and merged, and a file that does not fit is refused with everything that is wrong with it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "apps/model_file/model_file.h"
#include "apps/model_file/stored_factors.h"
#include "engine/core/random.h"
#include "layers/weight.h"
#include "tests/error_message.h"

using namespace ab;
using ab::test::contains;
using ab::test::message_of;

namespace {

Tensor noise(const Shape& shape, std::uint64_t stream) {
  const Tensor t(shape);
  const Philox random{11, stream};
  for (std::int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = 0.1f * random.normal(static_cast<std::uint64_t>(i));
  return t;
}

/// The weights that may be factorised.
std::vector<Weight*> weights_of(Layer& model) {
  std::vector<Weight*> weights = inventory_of(model).weights;
  std::erase_if(weights, [](const Weight* w) { return w->role() != ParamRole::weight; });
  return weights;
}
Weight& first_weight(Layer& model) { return *weights_of(model).front(); }

void factorise(Weight& weight, std::int64_t r, bool with_rest) {
  weight.factorise(noise({weight.rows(), r}, 1), noise({r, weight.columns()}, 2), Weight::Mode::train_b,
                   with_rest ? noise(weight.shape(), 3) : Tensor());
}

Tensor output(Layer& model, std::int64_t image_size) {
  const NoGradScope no_grad;
  model.set_training(false);
  return model.forward(Var(noise({2, image_size, image_size, 3}, 4))).value();
}

void expect_same_bits(const Tensor& a, const Tensor& b) {
  ASSERT_EQ(a.shape(), b.shape());
  EXPECT_EQ(std::memcmp(a.raw(), b.raw(), a.bytes()), 0);
}

const ModelSpec kMlp{.name = "mlp", .width = 0.0625};

/// Every architecture, with convolutions that are wider than tall and taller than wide.
const ModelSpec kSpecs[] = {
    {.name = "resnet20", .seed = 5},
    {.name = "resnet18", .classes = 7, .image_size = 64, .width = 0.125, .seed = 5},
    {.name = "vgg11_bn", .image_size = 32, .width = 0.03125, .seed = 5},
    {.name = "vgg11_bn_cifar", .width = 0.0625, .seed = 5},
    {.name = "vit_ti_16", .image_size = 48, .width = 1.0 / 3, .qkv_bias = false, .seed = 5},
    {.name = "mlp", .width = 0.0625, .seed = 5},
};

class ModelFile : public testing::TestWithParam<ModelSpec> {};

TEST_P(ModelFile, ComesBackUnderEitherNamesDenseFactoredWithARestAndWithSpatialFactors) {
  const ModelSpec& spec = GetParam();
  for (const TensorNames names : {TensorNames::torchvision, TensorNames::timm})
    for (const int form : {0, 1, 2, 3}) {
      const auto model = make_model(spec);
      for (Weight* w : weights_of(*model))
        if (form > 0) {
          if (form == 3) w->set_conv_factors(ConvFactors::spatial);
          factorise(*w, std::min<std::int64_t>(3, w->n()), form == 2);
        }
      const LoadedModel loaded = model_from_file(model_to_file(*model, {spec, "cifar10"}, names), "f");
      EXPECT_EQ(loaded.info.dataset, "cifar10");
      EXPECT_EQ(loaded.info.spec.name, spec.name);
      EXPECT_EQ(loaded.info.spec.classes, spec.classes);
      EXPECT_EQ(loaded.info.spec.image_size, spec.image_size);
      EXPECT_EQ(loaded.info.spec.width, spec.width);
      EXPECT_EQ(loaded.info.spec.qkv_bias, spec.qkv_bias);
      for (Weight* w : weights_of(*loaded.model)) {
        EXPECT_EQ(w->factored(), form > 0);
        EXPECT_EQ(w->rest().defined(), form == 2);
      }
      expect_same_bits(output(*model, spec.image_size), output(*loaded.model, spec.image_size));
    }
}

TEST_P(ModelFile, FillsAnotherModelWithItsFactorsMultiplied) {
  const ModelSpec& spec = GetParam();
  const auto model = make_model(spec);
  for (Weight* w : weights_of(*model)) factorise(*w, std::min<std::int64_t>(2, w->n()), true);
  for (const TensorNames names : {TensorNames::torchvision, TensorNames::timm}) {
    ModelSpec blank = spec;
    blank.draw = false;
    const auto other = make_model(blank), merged = make_model(spec);
    const TensorFile content = model_to_file(*model, {spec, "cifar10"}, names);
    EXPECT_TRUE(load_weights(*other, content, "f").kept.empty());
    for (Weight* w : weights_of(*merged)) factorise(*w, std::min<std::int64_t>(2, w->n()), true);
    EXPECT_EQ(merge_factors(*merged), static_cast<std::int64_t>(weights_of(*model).size()));
    expect_same_bits(output(*merged, spec.image_size), output(*other, spec.image_size));
  }
}

TEST_P(ModelFile, WithoutItsMetadataIsReadByItsNames) {
  const ModelSpec& spec = GetParam();
  const auto model = make_model(spec);
  for (const TensorNames names : {TensorNames::torchvision, TensorNames::timm}) {
    ModelSpec blank = spec;
    blank.draw = false;
    const auto other = make_model(blank);
    TensorFile content = model_to_file(*model, {spec, "cifar10"}, names);
    content.metadata.clear();
    content.tensors.push_back({"bn1.num_batches_tracked", Tensor::zeros(Shape{}, DType::int64)});
    load_weights(*other, content, "f");
    expect_same_bits(output(*model, spec.image_size), output(*other, spec.image_size));
  }
}

INSTANTIATE_TEST_SUITE_P(All, ModelFile, testing::ValuesIn(kSpecs), [](const auto& spec) { return spec.param.name; });

/// A layer of one weight is enough of a model to be written.
struct OneWeight final : Layer {
  explicit OneWeight(const Shape& shape, bool spatial = false)
      : weight("w", noise(shape, 9), ParamRole::weight, spatial) {}
  Var forward(const Var& x) override { return x; }
  void list(Inventory& inventory) override {
    weight.list(inventory.params);
    inventory.weights.push_back(&weight);
  }
  Weight weight;
};

TEST(StoredFactors, MultiplyToTheWeightInPyTorchsOrder) {
  for (const Shape& shape : {Shape{4, 3, 3, 2}, Shape{40, 3, 3, 2}, Shape{5, 5}, Shape{3, 7}, Shape{7, 3}}) {
    OneWeight layer(shape);
    factorise(layer.weight, 2, true);
    const TensorFile content = model_to_file(layer, {kMlp, "synthetic"});
    const Shape stored_shape = factored_weights(content, "f").at("w").shape;
    const std::int64_t out = stored_shape[0], in = stored_shape.numel() / out;
    const Tensor &a = *content.find("w.a"), &b = *content.find("w.b"), &rest = *content.find("w.rest");
    ASSERT_EQ(a.shape(), (Shape{std::max(out, in), 2}));
    ASSERT_EQ(b.shape(), (Shape{2, std::min(out, in)}));
    const NoGradScope no_grad;
    const Tensor w = to_torch_order(layer.weight.formed().value());
    ASSERT_EQ(w.shape(), stored_shape);
    for (std::int64_t o = 0; o < out; ++o)
      for (std::int64_t k = 0; k < in; ++k) {
        const std::int64_t row = out >= in ? o : k, column = out >= in ? k : o;
        double product = rest.data<float>()[o * in + k];
        for (std::int64_t r = 0; r < 2; ++r)
          product += a.data<float>()[row * 2 + r] * b.data<float>()[r * b.dim(1) + column];
        EXPECT_NEAR(product, w.data<float>()[o * in + k], 1e-6);
      }
  }
}

TEST(StoredFactors, SpatialOnesMultiplyToTheConvolutionInPyTorchsOrder) {
  for (const Shape& shape : {Shape{4, 3, 3, 6}, Shape{9, 3, 5, 2}}) {
    OneWeight layer(shape, true);
    layer.weight.set_conv_factors(ConvFactors::spatial);
    factorise(layer.weight, 2, false);
    const TensorFile content = model_to_file(layer, {kMlp, "synthetic"});
    EXPECT_EQ(content.metadata.at("format_version"), "3");
    const FactoredShape stored = factored_weights(content, "f").at("w");
    ASSERT_TRUE(stored.spatial);
    const Tensor &a = *content.find("w.a"), &b = *content.find("w.b");
    const bool tall = stored.rows() >= stored.columns();
    const NoGradScope no_grad;
    const Tensor w = layer.weight.formed().value();  // [O, kh, kw, I]
    for (std::int64_t k = 0; k < w.numel(); ++k) {
      const std::int64_t i = k % shape[3], x = k / shape[3] % shape[2], y = k / (shape[3] * shape[2]) % shape[1];
      const std::int64_t o = k / (shape[3] * shape[2] * shape[1]);
      const std::int64_t of_w2[] = {o * shape[1] + y, i * shape[2] + x};
      double product = 0;
      for (std::int64_t r = 0; r < 2; ++r)
        product += a.data<float>()[of_w2[tall ? 0 : 1] * 2 + r] * b.data<float>()[r * b.dim(1) + of_w2[tall ? 1 : 0]];
      EXPECT_NEAR(product, w.data<float>()[k], 1e-6);
    }
  }
}

TEST(StoredFactors, SpatialOnesAreRefusedUnlessTheyAreOfConvolutions) {
  const ModelSpec resnet{.name = "resnet20", .seed = 5};
  const auto model = make_model(resnet);
  Weight& weight = first_weight(*model);
  weight.set_conv_factors(ConvFactors::spatial);
  factorise(weight, 4, false);
  const TensorFile good = model_to_file(*model, {resnet, "cifar10"});
  const auto refusal = [&](const std::string& spatial) {
    TensorFile content = good;
    content.metadata["spatial"] = spatial;
    return message_of(ErrorKind::checkpoint, [&] { model_from_file(content, "f"); });
  };
  EXPECT_TRUE(contains(refusal("[]"), "factors of " + weight.name() + " are missing or do not fit its shape"));
  for (const char* text : {"", "{}", "3", "["}) EXPECT_TRUE(contains(refusal(text), "is not a JSON list")) << text;
  for (const char* text : {"[3]", "[\"conv1.weight\"]", "[null]"})
    EXPECT_TRUE(contains(refusal(text), "which is no convolution that it holds factors of")) << text;
  const std::string deep(1'000'000, '['), closed = deep + std::string(deep.size(), ']');
  EXPECT_TRUE(contains(refusal(deep), "is not a JSON list"));
  EXPECT_TRUE(contains(refusal(closed), "lists an entry that is no name, which is no convolution"));

  // A whole-image convolution has none, whatever a file says.
  const ModelSpec vgg{.name = "vgg11_bn", .image_size = 32, .width = 0.03125, .seed = 5};
  const auto classifier = make_model(vgg);
  Weight* whole = nullptr;
  for (Weight* w : weights_of(*classifier))
    if (w->name() == "classifier.0.weight") whole = w;
  ASSERT_NE(whole, nullptr);
  factorise(*whole, 2, false);
  TensorFile content = model_to_file(*classifier, {vgg, "cifar10"}, TensorNames::timm);
  const std::string name = "pre_logits.fc1.weight";
  content.metadata["spatial"] = "[\"" + name + "\"]";
  const std::int64_t rows = whole->outputs() * whole->shape()[1], columns = whole->shape().numel() / rows;
  for (NamedTensor& t : content.tensors) {
    if (t.name == name + ".a") t.value = Tensor::zeros({std::max(rows, columns), 2});
    if (t.name == name + ".b") t.value = Tensor::zeros({2, std::min(rows, columns)});
  }
  EXPECT_TRUE(contains(message_of(ErrorKind::checkpoint, [&] { model_from_file(content, "f"); }),
                       name + " cannot have spatial factors"));
}

TEST(StoredFactors, AreRefusedUnlessTheyFit) {
  const auto model = make_model(kMlp);
  Weight& weight = first_weight(*model);
  factorise(weight, 4, false);
  const TensorFile good = model_to_file(*model, {kMlp, "synthetic"});
  const auto refusal = [&](const TensorFile& content) {
    return message_of(ErrorKind::checkpoint, [&] { model_from_file(content, "f"); });
  };
  const auto with_metadata = [&](const std::string& factored) {
    TensorFile content = good;
    content.metadata["factored"] = factored;
    return content;
  };
  EXPECT_TRUE(contains(refusal(with_metadata(R"({"fc2.weight":[32,32],"fc9.weight":[3,3]})")),
                       "factors of fc9.weight are missing or do not fit its shape [3, 3]"));
  EXPECT_TRUE(
      contains(refusal(with_metadata(R"({"fc2.weight":[32,2,4,4]})")), "make up [32, 2, 4, 4], expected [32, 32]"));
  EXPECT_TRUE(contains(refusal(with_metadata("{}")), "fc2.weight is missing"));
  for (const char* text : {"", "[]", "{", "null", "3"})
    EXPECT_TRUE(contains(refusal(with_metadata(text)), "not a JSON object")) << text;
  const std::string deep(1'000'000, '['), closed = deep + std::string(deep.size(), ']');
  EXPECT_TRUE(contains(refusal(with_metadata(deep)), "not a JSON object"));
  EXPECT_TRUE(contains(refusal(with_metadata(closed)), "not a JSON object"));
  EXPECT_TRUE(contains(refusal(with_metadata(R"({"fc2.weight":)" + closed + "}")), "no sensible shape for fc2.weight"));
  for (const char* list : {"3", "[]", "[9]", "[0,3]", "[-1,3]", "[1.5,3]", "[3,\"3\"]", "[4294967296,4294967296]",
                           "[1,1,1,1,1,1,1]", "[18446744073709551615,1]", "[[3],3]"})
    EXPECT_TRUE(contains(refusal(with_metadata(fmt::format(R"({{"fc2.weight":{}}})", list))),
                         "no sensible shape for fc2.weight"))
        << list;

  TensorFile content = good;
  std::erase_if(content.tensors, [](const NamedTensor& t) { return t.name == "fc2.weight.b"; });
  EXPECT_TRUE(contains(refusal(content), "factors of fc2.weight"));
  content = good;
  for (NamedTensor& t : content.tensors)
    if (t.name == "fc2.weight.b") t.value = Tensor::zeros({5, 32});  // r differs from A's
  EXPECT_TRUE(contains(refusal(content), "factors of fc2.weight"));
  content = good;
  content.tensors.push_back({"other.a", Tensor::zeros({3, 1})});
  content.tensors.push_back({"other.b", Tensor::zeros({1, 3})});
  content.metadata["factored"] = R"({"fc2.weight":[32,32],"other":[3,3]})";
  EXPECT_TRUE(contains(refusal(content), "factors of other, which its model does not have"));
}

TEST(ModelFileErrors, NameEverythingThatDoesNotFit) {
  TensorFile content = model_to_file(*make_model(kMlp), {kMlp, "synthetic"});
  const std::string missing = content.tensors[0].name, wrong = content.tensors[1].name,
                    integers = content.tensors[2].name;
  content.tensors.erase(content.tensors.begin());
  content.tensors[0].value = Tensor::zeros({2, 2});
  content.tensors[1].value = Tensor::zeros(content.tensors[1].value.shape(), DType::int64);
  content.tensors.push_back({"extra", Tensor::zeros({1})});
  const std::string message = message_of(ErrorKind::checkpoint, [&] { model_from_file(content, "f"); });
  EXPECT_TRUE(contains(message, missing + " is missing"));
  EXPECT_TRUE(contains(message, wrong + " is float32 [2, 2], expected"));
  EXPECT_TRUE(contains(message, integers + " is int64"));
  EXPECT_TRUE(contains(message, "extra is not part of it"));

  // Another model altogether: a sentence, not a page.
  const auto resnet = make_model({.name = "resnet20"});
  const std::string many = message_of(ErrorKind::checkpoint, [&] { load_weights(*resnet, {}, "f"); });
  EXPECT_TRUE(contains(many, "conv1.weight is missing"));
  EXPECT_TRUE(contains(many, " more like that"));
  EXPECT_LT(many.size(), 1000u);
}

TEST(ModelFileErrors, NameATensorThatIsNotFinite) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()})
    for (const char* name : {"bn1.running_var", "layer1.0.conv1.weight", "layer1.0.conv1.weight.b"}) {
      const auto model = make_model({.name = "resnet20"});
      if (std::string(name).ends_with(".b")) factorise(first_weight(*model), 2, false);
      const ModelSpec spec{.name = "resnet20"};
      const TensorFile content = model_to_file(*model, {spec, "cifar10"});
      content.find(name)->data<float>()[3] = bad;
      EXPECT_TRUE(contains(message_of(ErrorKind::checkpoint, [&] { model_from_file(content, "f"); }),
                           fmt::format("tensor {} holds NaN or infinity", name)));
    }
}

TEST(ModelFileErrors, TellWhatIsWrongWithTheMetadata) {
  const TensorFile good = model_to_file(*make_model(kMlp), {kMlp, "synthetic"});
  const auto refusal = [&](const char* key, const char* value) {
    TensorFile content = good;
    if (value) content.metadata[key] = value;
    else content.metadata.erase(key);
    return message_of(ErrorKind::checkpoint, [&] { model_from_file(content, "f"); });
  };
  EXPECT_TRUE(contains(refusal("format", nullptr), "lacks \"format\""));
  EXPECT_TRUE(contains(refusal("format", "pt"), "its format is 'pt'"));
  EXPECT_TRUE(
      contains(refusal("format_version", "4"), "format version 4, this program reads versions 2 and 3; use a newer"));
  EXPECT_TRUE(
      contains(refusal("format_version", "1"), "format version 1, this program reads versions 2 and 3; load it with"));
  EXPECT_TRUE(contains(refusal("model", "lenet"), "'lenet'"));
  EXPECT_TRUE(contains(refusal("names", "keras"), "names are 'keras'"));
  EXPECT_TRUE(contains(refusal("qkv_bias", "false"), "mlp has no qkv_bias"));
  EXPECT_TRUE(contains(refusal("qkv_bias", "no"), "'no', expected 'true' or 'false'"));
  for (const char* classes : {"-1", "0", "ten", "99999999999999999999", "10 ", "65536"})
    EXPECT_TRUE(contains(refusal("classes", classes), "not a sensible number")) << classes;
  for (const char* width : {"-1", "0", "nan", "inf", "1e400", "17", "0.5x", ""})
    EXPECT_TRUE(contains(refusal("width", width), "not a sensible number")) << width;
  EXPECT_TRUE(contains(refusal("image_size", "0"), "not a sensible number"));
  EXPECT_TRUE(contains(refusal("image_size", "16"), "fc1.weight is float32"));
}

TEST(LoadWeights, TakesOtherFloatingTypes) {
  const auto model = make_model(kMlp), other = make_model(kMlp);
  TensorFile content = model_to_file(*model, {kMlp, "synthetic"});
  content.metadata.clear();
  for (NamedTensor& t : content.tensors) t.value = Tensor::from(t.value.to_doubles(), t.value.shape());
  load_weights(*other, content, "f");
  expect_same_bits(output(*model, 32), output(*other, 32));
}

/// The weights of a model as another program stores them, with names that `rename` gives them.
template <class F> TensorFile foreign(const ModelSpec& spec, TensorNames names, const F& rename) {
  TensorFile content = model_to_file(*make_model(spec), {spec, "cifar10"}, names);
  content.metadata = {{"format", "pt"}};
  for (NamedTensor& t : content.tensors) t.name = rename(t.name);
  return content;
}

/// A model of this shape with values of its own.
std::unique_ptr<Layer> other_model(ModelSpec spec) {
  spec.seed += 1;
  return make_model(spec);
}

std::string joined(const std::vector<std::string>& texts) { return fmt::format("{}", fmt::join(texts, "|")); }

TEST_P(ModelFile, IsReadWithoutWhatWrappersPutIntoItsNames) {
  const ModelSpec& spec = GetParam();
  const Tensor expected = output(*make_model(spec), spec.image_size);
  for (const TensorNames names : {TensorNames::torchvision, TensorNames::timm})
    for (const char* prefix : {"module.", "_orig_mod.", "model.", "state_dict.", "module._orig_mod.",
                               "_orig_mod.module.", "state_dict.model.", "ema_model.module.", "net.backbone."}) {
      TensorFile content = foreign(spec, names, [&](const std::string& name) { return prefix + name; });
      content.tensors.push_back({"n_averaged", Tensor::zeros(Shape{}, DType::int64)});
      const auto model = other_model(spec);
      const LoadedWeights loaded = load_weights(*model, content, "f");
      expect_same_bits(expected, output(*model, spec.image_size));
      ASSERT_EQ(loaded.remarks.size(), 2u) << prefix;
      EXPECT_TRUE(contains(loaded.remarks[0], "its tensors are read without '")) << prefix;
      EXPECT_EQ(loaded.remarks[1], "the model does not need n_averaged (int64 []), which is ignored");
    }
}

TEST(LoadWeights, LeavesWrappersOutInsideNamesToo) {
  const ModelSpec spec{.name = "vgg11_bn_cifar", .width = 0.0625, .seed = 5};
  // DataParallel around the features alone, as PyTorch's own example has it.
  const TensorFile content = foreign(spec, TensorNames::torchvision, [](const std::string& name) {
    return name.starts_with("features.") ? "features.module." + name.substr(9) : name;
  });
  const auto model = other_model(spec);
  EXPECT_EQ(joined(load_weights(*model, content, "f").remarks),
            "its tensors are read without 'module.' in their names");
  expect_same_bits(output(*make_model(spec), 32), output(*model, 32));
}

TEST(LoadWeights, ReadsTorchvisionsOlderNamesOfTransformers) {
  const ModelSpec spec{.name = "vit_ti_16", .image_size = 48, .width = 1.0 / 3, .seed = 5};
  const TensorFile content = foreign(spec, TensorNames::torchvision, [](std::string name) {
    for (const auto& [now, then] : {std::pair(".mlp.0.", ".mlp.linear_1."), std::pair(".mlp.3.", ".mlp.linear_2.")})
      if (const std::size_t at = name.find(now); at != std::string::npos) name.replace(at, 7, then);
    return name;
  });
  const auto model = other_model(spec);
  EXPECT_TRUE(load_weights(*model, content, "f").remarks.empty());
  expect_same_bits(output(*make_model(spec), 48), output(*model, 48));
}

TEST(LoadWeights, RefusesAFileThatHoldsTheModelTwice) {
  TensorFile content = foreign(kMlp, TensorNames::torchvision, [](const std::string& name) { return "model." + name; });
  for (const NamedTensor& t : foreign(kMlp, TensorNames::torchvision, [](auto name) { return "ema." + name; }).tensors)
    content.tensors.push_back(t);
  EXPECT_TRUE(contains(message_of(ErrorKind::checkpoint, [&] { load_weights(*make_model(kMlp), content, "f"); }),
                       "f holds the tensors of the model 2 times, as 'ema.…' and 'model.…'; keep those of one"));
  // Another network's tensors are no copies, and keep their names in the message.
  const TensorFile other = foreign({.name = "resnet20"}, TensorNames::torchvision, [](auto name) { return name; });
  EXPECT_TRUE(contains(message_of(ErrorKind::checkpoint, [&] { load_weights(*make_model(kMlp), other, "f"); }),
                       "fc1.weight is missing"));
}

TEST(LoadWeights, IgnoresWithAWordWhatCannotBeWeights) {
  TensorFile content = foreign(kMlp, TensorNames::torchvision, [](auto name) { return name; });
  content.tensors.push_back({"position_ids", Tensor::zeros({1, 4}, DType::int64)});
  content.tensors.push_back({"nothing", Tensor::zeros({0, 4})});
  content.tensors.push_back({"bn1.num_batches_tracked", Tensor::zeros(Shape{}, DType::int64)});
  content.unread.push_back({"mask\x1b[2J", "has dtype BOOL"});
  const auto model = other_model(kMlp);
  EXPECT_EQ(
      joined(load_weights(*model, content, "f").remarks),
      "the model does not need position_ids (int64 [1, 4]); nothing (float32 [0, 4]); mask?[2J (has dtype BOOL), which "
      "are ignored");
  expect_same_bits(output(*make_model(kMlp), 32), output(*model, 32));

  std::erase_if(content.tensors, [](const NamedTensor& t) { return t.name == "fc2.weight"; });
  content.unread.push_back({"fc2.weight", "has dtype F8_E4M3"});
  content.tensors.push_back({"scale", Tensor::zeros({3})});
  const std::string refusal = message_of(ErrorKind::checkpoint, [&] { load_weights(*model, content, "f"); });
  EXPECT_TRUE(
      contains(refusal, "fc2.weight has dtype F8_E4M3, which abtrain does not hold; convert it to F32 or BF16"));
  EXPECT_TRUE(contains(refusal, "scale is not part of it"));
}

TEST(LoadWeights, ADoubleBeyondFloatIsNotFinite) {
  TensorFile content = foreign(kMlp, TensorNames::torchvision, [](auto name) { return name; });
  for (NamedTensor& t : content.tensors)
    if (t.name == "fc1.bias") t.value = Tensor::from(std::vector<double>(32, 1e300), t.value.shape());
  EXPECT_TRUE(contains(message_of(ErrorKind::checkpoint, [&] { load_weights(*make_model(kMlp), content, "f"); }),
                       "tensor fc1.bias holds NaN or infinity"));
}

TEST(LoadWeights, AClassifierUnderAnotherNameIsFoundByItsShape) {
  const ModelSpec spec{.name = "resnet20", .seed = 5};
  for (const char* layer : {"linear.", "last_linear.", "fc.1.", "head.fc."}) {
    const TensorFile content = foreign(spec, TensorNames::torchvision, [&](const std::string& name) {
      return name.starts_with("fc.") ? layer + name.substr(3) : name;
    });
    const auto model = other_model(spec);
    EXPECT_EQ(joined(load_weights(*model, content, "f").remarks),
              fmt::format("its '{}' is taken for the classifier 'fc.'", layer));
    expect_same_bits(output(*make_model(spec), 32), output(*model, 32));
  }
  TensorFile two = foreign(spec, TensorNames::torchvision, [](const std::string& name) {
    return name.starts_with("fc.") ? "linear." + name.substr(3) : name;
  });
  two.tensors.push_back({"aux.weight", Tensor::zeros({10, 64})});
  EXPECT_TRUE(contains(message_of(ErrorKind::checkpoint, [&] { load_weights(*make_model(spec), two, "f"); }),
                       "fc.weight is missing; fc.bias is missing; "))
      << "which one it is cannot be told";
}

TEST_P(ModelFile, WithoutAClassifierKeepsThatOfTheModelWhenAllowed) {
  const ModelSpec& spec = GetParam();
  for (const TensorNames names : {TensorNames::torchvision, TensorNames::timm}) {
    TensorFile content = foreign(spec, names, [](const std::string& name) { return "module." + name; });
    const auto model = other_model(spec);
    std::string last = torch_name(inventory_of(*model).weights.back()->name(), names);
    last.resize(last.size() - 6);  // "weight"
    std::erase_if(content.tensors, [&](const NamedTensor& t) { return t.name.starts_with("module." + last); });
    EXPECT_TRUE(contains(message_of(ErrorKind::checkpoint, [&] { load_weights(*other_model(spec), content, "f"); }),
                         last + "weight is missing"));
    const Tensor own = inventory_of(*model).weights.back()->dense().value.value().clone();
    const LoadedWeights loaded = load_weights(*model, content, "f", OtherClassifier::keep_own);
    EXPECT_FALSE(loaded.had_classifier);
    EXPECT_EQ(loaded.kept, (std::vector<std::string>{last + "weight", last + "bias"}));
    expect_same_bits(inventory_of(*model).weights.back()->dense().value.value(), own);
    expect_same_bits(inventory_of(*model).weights.front()->dense().value.value(),
                     inventory_of(*make_model(spec)).weights.front()->dense().value.value());
  }
}

TEST(LoadWeights, FeaturesOfAVggAloneAreEnough) {
  const ModelSpec spec{.name = "vgg11_bn", .image_size = 32, .width = 0.03125, .seed = 5};
  TensorFile content = foreign(spec, TensorNames::torchvision, [](auto name) { return name; });
  std::erase_if(content.tensors, [](const NamedTensor& t) { return t.name.starts_with("classifier."); });
  const LoadedWeights loaded = load_weights(*other_model(spec), content, "f", OtherClassifier::keep_own);
  EXPECT_EQ(loaded.kept.size(), 6u);

  content.unread.push_back({"classifier.6.weight", "has dtype I8"});
  EXPECT_TRUE(contains(message_of(ErrorKind::checkpoint,
                                  [&] { load_weights(*other_model(spec), content, "f", OtherClassifier::keep_own); }),
                       "classifier.6.weight has dtype I8"))
      << "one that is there and cannot be read";
}

TEST(LoadWeights, AClassifierOfOtherClassesKeepsItsValuesWhenAllowed) {
  for (const char* name : {"resnet20", "vit_ti_16", "mlp"})
    for (const TensorNames names : {TensorNames::torchvision, TensorNames::timm}) {
      const ModelSpec ten{.name = name, .width = 1.0 / 3, .seed = 1};
      ModelSpec three = ten;
      three.classes = 3, three.seed = 2;
      TensorFile content = model_to_file(*make_model(ten), {ten, "cifar10"}, names);
      content.metadata.clear();
      const auto model = make_model(three);
      EXPECT_TRUE(contains(message_of(ErrorKind::checkpoint, [&] { load_weights(*model, content, "f"); }),
                           "weight is float32 [10, "));
      const Tensor head = inventory_of(*model).weights.back()->dense().value.value().clone();
      const std::vector<std::string> fresh = load_weights(*model, content, "f", OtherClassifier::keep_own).kept;
      ASSERT_EQ(fresh.size(), 2u);
      EXPECT_TRUE(fresh[0].ends_with(".weight") && fresh[1].ends_with(".bias"));
      expect_same_bits(inventory_of(*model).weights.back()->dense().value.value(), head);
      expect_same_bits(inventory_of(*model).weights.front()->dense().value.value(),
                       inventory_of(*make_model(ten)).weights.front()->dense().value.value());
      // It may differ in its classes only.
      for (NamedTensor& t : content.tensors)
        if (t.name == fresh[0]) t.value = Tensor::zeros({10, 3});
      EXPECT_TRUE(contains(
          message_of(ErrorKind::checkpoint, [&] { load_weights(*model, content, "f", OtherClassifier::keep_own); }),
          fresh[0] + " is float32 [10, 3]"));
    }
}

}  // namespace
