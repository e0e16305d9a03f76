// SPDX-License-Identifier: MIT
//
// Models as files: what is saved is built again and computes the same, and a file that does not fit is
// refused with everything that is wrong with it.
#include <gtest/gtest.h>

#include <cstring>

#include "apps/model_file.h"
#include "engine/core/random.h"
#include "layers/models/models.h"
#include "layers/weight.h"
#include "tests/error_message.h"

using namespace ab;
using ab::testing::contains;
using ab::testing::message_of;

namespace {

Tensor noise(const Shape& shape, std::uint64_t stream) {
  const Tensor t(shape);
  const Philox random{11, stream};
  for (std::int64_t i = 0; i < t.numel(); ++i)
    t.data<float>()[i] = 0.1f * random.normal(static_cast<std::uint64_t>(i));
  return t;
}

/// The first weight that may be factorised.
Weight& first_weight(Layer& model) {
  for (Weight* weight : inventory_of(model).weights)
    if (weight->role() == ParamRole::weight) return *weight;
  throw Bug("the model has no weight");
}

void factorise(Weight& weight, std::int64_t r, bool with_rest) {
  weight.factorise(noise({weight.out(), r}, 1), noise({r, weight.in()}, 2), Weight::Mode::train_b,
                   with_rest ? noise(weight.shape(), 3) : Tensor());
}

void expect_same_output(Layer& one, Layer& other) {
  const NoGradScope no_grad;
  const Var x(noise({2, 32, 32, 3}, 4));
  one.set_training(false);
  other.set_training(false);
  const Tensor a = one.forward(x).value(), b = other.forward(x).value();
  ASSERT_EQ(a.shape(), b.shape());
  EXPECT_EQ(std::memcmp(a.raw(), b.raw(), a.bytes()), 0);
}

TEST(ModelFile, ComesBackDenseFactoredAndWithARest) {
  for (const int form : {0, 1, 2}) {
    const auto model = make_model("resnet20", 10, 5);
    if (form > 0) factorise(first_weight(*model), 3, form == 2);
    const LoadedModel loaded = model_from_file(model_to_file(*model, {"resnet20", "cifar10", 10}), "f");
    EXPECT_EQ(loaded.info.model, "resnet20");
    EXPECT_EQ(loaded.info.dataset, "cifar10");
    EXPECT_EQ(first_weight(*loaded.model).factored(), form > 0);
    EXPECT_EQ(first_weight(*loaded.model).rest().defined(), form == 2);
    expect_same_output(*model, *loaded.model);
  }
}

TEST(ModelFile, NamesEverythingThatDoesNotFit) {
  TensorFile content = model_to_file(*make_model("mlp", 10, 0), {"mlp", "synthetic", 10});
  const std::string missing = content.tensors[0].name, wrong = content.tensors[1].name;
  content.tensors.erase(content.tensors.begin());
  content.tensors[0].value = Tensor::zeros({2, 2});
  content.tensors.push_back({"extra", Tensor::zeros({1})});
  const std::string message = message_of(ErrorKind::checkpoint, [&] { model_from_file(content, "f"); });
  EXPECT_TRUE(contains(message, missing + " is missing"));
  EXPECT_TRUE(contains(message, wrong + " is float32 [2, 2], expected"));
  EXPECT_TRUE(contains(message, "extra is not part of it"));
}

TEST(ModelFile, RefusesFactorsThatDoNotFit) {
  const auto model = make_model("mlp", 10, 0);
  Weight& weight = first_weight(*model);
  factorise(weight, 4, false);
  const TensorFile good = model_to_file(*model, {"mlp", "synthetic", 10});

  TensorFile content = good;
  content.metadata["factored"] += ",nothing.weight";
  EXPECT_TRUE(
      contains(message_of(ErrorKind::checkpoint, [&] { model_from_file(content, "f"); }), "does not have"));
  content = good;
  std::erase_if(content.tensors, [&](const NamedTensor& t) { return t.name == weight.outer().name; });
  EXPECT_TRUE(contains(message_of(ErrorKind::checkpoint, [&] { model_from_file(content, "f"); }),
                       "factors of " + weight.name()));
  content = good;
  for (NamedTensor& t : content.tensors)
    if (t.name == weight.inner().name) t.value = Tensor::zeros({5, weight.in()});  // r differs from outer's
  EXPECT_TRUE(contains(message_of(ErrorKind::checkpoint, [&] { model_from_file(content, "f"); }),
                       weight.inner().name + " is float32 [5, "));
}

TEST(ModelFile, RefusesBadMetadata) {
  const TensorFile good = model_to_file(*make_model("mlp", 10, 0), {"mlp", "synthetic", 10});
  const auto refusal = [&](const char* key, const char* value) {
    TensorFile content = good;
    if (value)
      content.metadata[key] = value;
    else
      content.metadata.erase(key);
    return message_of(ErrorKind::checkpoint, [&] { model_from_file(content, "f"); });
  };
  EXPECT_TRUE(contains(refusal("format", nullptr), "lacks \"format\""));
  EXPECT_TRUE(contains(refusal("format", "pt"), "its format is 'pt'"));
  EXPECT_TRUE(contains(refusal("format_version", "2"), "format version 2, this program reads up to 1"));
  EXPECT_TRUE(contains(refusal("model", "lenet"), "'lenet'"));
  for (const char* classes : {"-1", "0", "ten", "99999999999999999999", "10 "})
    EXPECT_TRUE(contains(refusal("classes", classes), "not a sensible number")) << classes;
}

}  // namespace
