// SPDX-License-Identifier: MIT
//
// Names and layouts against torchvision and timm themselves: what they call every tensor of every model, and
// what they compute from given tensors. tests/golden/library_cases.py writes the fixtures.
#include "apps/model_file/torch_layout.h"

#include <fstream>

#include "apps/model_file/model_file.h"
#include "tests/golden/fixtures.h"
#include "tests/golden/formula_init.h"

namespace ab::golden {
namespace {

using NamedShapes = std::map<std::string, std::vector<std::int64_t>>;

const nlohmann::json& library_tensors() {
  static const nlohmann::json libraries =
      nlohmann::json::parse(std::ifstream(std::string(AB_SOURCE_DIR) + "/tests/golden/libraries.json"));
  return libraries;
}

const TensorFile& library_logits() {
  static const TensorFile file = read_fixtures("libraries.safetensors");
  return file;
}

NamedShapes tensors_of(const std::string& library, const std::string& model) {
  const nlohmann::json& entry = library_tensors().at(library).at(model);
  return entry.is_string() ? tensors_of(entry, model) : entry.get<NamedShapes>();
}

NamedShapes tensors_of(Layer& model, TensorNames names) {
  NamedShapes tensors;
  const auto add = [&](const std::string& name, const Tensor& value) {
    const Shape shape = torch_shape(name, value.shape(), names);
    tensors[torch_name(name, names)] = {shape.begin(), shape.end()};
  };
  const Inventory inventory = inventory_of(model);
  for (const Param* param : inventory.params) add(param->name, param->value.value());
  for (const Buffer& buffer : inventory.buffers) add(buffer.name, buffer.value);
  return tensors;
}

TEST(TorchLayout, EveryTensorOfEveryModelHasItsNameAndShape) {
  int compared = 0;
  for (const auto& [library, models] : library_tensors().items()) {
    const TensorNames names = library == "timm" ? TensorNames::timm : TensorNames::torchvision;
    for (const auto& [name, unused] : models.items()) {
      const auto model = make_model({.name = name, .classes = 10, .image_size = 224, .draw = false});
      EXPECT_EQ(tensors_of(*model, names), tensors_of(library, name)) << library << " " << name;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 2 * 15);
}

TEST(TorchLayout, FactorsAreNamedAfterTheirWeight) {
  const std::string weight = "encoder.layers.encoder_layer_11.self_attention.in_proj_weight";
  EXPECT_EQ(torch_name(weight + ".a", TensorNames::timm), "blocks.11.attn.qkv.weight.a");
  EXPECT_EQ(torch_name("classifier.0.weight.rest", TensorNames::timm), "pre_logits.fc1.weight.rest");
  EXPECT_EQ(torch_shape("classifier.0.weight.rest", {2, 7, 7, 3}, TensorNames::torchvision), (Shape{2, 147}));
}

TEST(TorchLayout, OrdersElementsAsPyTorch) {
  const Shape krsc{2, 3, 2, 4};
  const Tensor value = uniform("w", krsc);
  const Tensor oihw = to_torch_order(value);
  ASSERT_EQ(oihw.shape(), (Shape{2, 4, 3, 2}));
  for (std::int64_t o = 0; o < 2; ++o)
    for (std::int64_t y = 0; y < 3; ++y)
      for (std::int64_t x = 0; x < 2; ++x)
        for (std::int64_t i = 0; i < 4; ++i)
          EXPECT_EQ(oihw.data<float>()[((o * 4 + i) * 3 + y) * 2 + x],
                    value.data<float>()[((o * 3 + y) * 2 + x) * 4 + i]);
  EXPECT_EQ(from_torch_order(oihw, krsc).to_doubles(), value.to_doubles());
  EXPECT_EQ(from_torch_order(oihw.view({2, 24}), krsc).to_doubles(), value.to_doubles());
  EXPECT_TRUE(to_torch_order(value.view({6, 8})).shares_storage_with(value));
}

/// A value in PyTorch's layout: matrices as parameter() has them, vectors around 1 (norms, variances) or 0.
Tensor formula_value(const std::string& name, const Shape& shape) {
  if (shape.rank() > 1) return parameter(name, shape);
  const Tensor t = uniform(name, shape, 0.1f);
  const bool around_one = name.ends_with("weight") || name.ends_with("running_var");
  for (float& v : t.span<float>()) v += around_one ? 1.0f : 0.0f;
  return t;
}

class Logits : public testing::TestWithParam<const char*> {};

TEST_P(Logits, AreTheLibrarys) {
  const Case c(library_logits(), GetParam());
  const bool timm = c.name().starts_with("timm/");
  const auto model = make_model({.name = c.option<std::string>("model"),
                                 .classes = c.option<std::int64_t>("classes"),
                                 .image_size = c.option<std::int64_t>("image_size"),
                                 .width = c.option<double>("width"),
                                 .draw = false});
  TensorFile state;  // as the library would have saved it
  for (const auto& [name, dims] : tensors_of(*model, timm ? TensorNames::timm : TensorNames::torchvision))
    state.tensors.push_back({name, formula_value(name, Shape(std::span<const std::int64_t>(dims)))});
  load_weights(*model, state, c.name());
  model->set_training(false);
  const NoGradScope no_grad;
  const Var x(images(2, c.option<std::int64_t>("image_size")));
  expect_close(model->forward(x).value(), c.tensor("logits"), 1e-5, c.name());
}

INSTANTIATE_TEST_SUITE_P(TorchLayout, Logits,
                         testing::Values("torchvision/resnet18", "torchvision/vgg11", "torchvision/vit_ti_16",
                                         "timm/resnet18", "timm/vit_ti_16"),
                         [](const auto& c) {
                           std::string name = c.param;
                           std::replace(name.begin(), name.end(), '/', '_');
                           return name;
                         });

}  // namespace
}  // namespace ab::golden
