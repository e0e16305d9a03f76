// SPDX-License-Identifier: MIT
#include "layers/models/models.h"

#include <algorithm>
#include <cmath>

namespace ab {
namespace {

/// The settings of a ModelSpec that only some models have.
struct Settings {
  bool dropout = false, drop_path = false, qkv_bias = false;
};
constexpr Settings kMlp{}, kConv6{}, kVgg{.dropout = true};
constexpr Settings kResNet{.dropout = true, .drop_path = true};
constexpr Settings kVit{.dropout = true, .drop_path = true, .qkv_bias = true};

struct Model {
  std::string name;
  Settings settings;
  std::unique_ptr<Layer> (*make)(const ModelSpec& spec, const Build& build);
};

const std::vector<Model>& models() {
  using S = const ModelSpec&;
  using B = const Build&;
  static const std::vector<Model> list{
      {"mlp", kMlp, make_mlp},
      {"conv6_cifar", kConv6, make_conv6_cifar},
      {"resnet20", kResNet, [](S spec, B build) { return make_resnet_cifar(20, spec, build); }},
      {"resnet56", kResNet, [](S spec, B build) { return make_resnet_cifar(56, spec, build); }},
      {"vgg11_bn_cifar", kVgg, [](S spec, B build) { return make_vgg_bn_cifar(11, spec, build); }},
      {"vgg16_bn_cifar", kVgg, [](S spec, B build) { return make_vgg_bn_cifar(16, spec, build); }},
      {"resnet18", kResNet, [](S spec, B build) { return make_resnet(18, spec, build); }},
      {"resnet34", kResNet, [](S spec, B build) { return make_resnet(34, spec, build); }},
      {"resnet50", kResNet, [](S spec, B build) { return make_resnet(50, spec, build); }},
      {"resnet101", kResNet, [](S spec, B build) { return make_resnet(101, spec, build); }},
      {"vgg11", kVgg, [](S spec, B build) { return make_vgg(11, false, spec, build); }},
      {"vgg13", kVgg, [](S spec, B build) { return make_vgg(13, false, spec, build); }},
      {"vgg16", kVgg, [](S spec, B build) { return make_vgg(16, false, spec, build); }},
      {"vgg19", kVgg, [](S spec, B build) { return make_vgg(19, false, spec, build); }},
      {"vgg11_bn", kVgg, [](S spec, B build) { return make_vgg(11, true, spec, build); }},
      {"vgg13_bn", kVgg, [](S spec, B build) { return make_vgg(13, true, spec, build); }},
      {"vgg16_bn", kVgg, [](S spec, B build) { return make_vgg(16, true, spec, build); }},
      {"vgg19_bn", kVgg, [](S spec, B build) { return make_vgg(19, true, spec, build); }},
      {"vit_ti_16", kVit, [](S spec, B build) { return make_vit(3, spec, build); }},
      {"vit_s_16", kVit, [](S spec, B build) { return make_vit(6, spec, build); }},
      {"vit_b_16", kVit, [](S spec, B build) { return make_vit(12, spec, build); }},
  };
  return list;
}

void check_settings(const Model& model, const ModelSpec& spec) {
  const auto has_or_default = [&](const char* setting, bool has, bool is_default) {
    AB_CHECK(has || is_default, "{} has no {}; leave that setting at its default or choose a different model",
             model.name, setting);
  };
  const auto is_rate = [](double p) { return p >= 0 && p < 1; };
  const ModelSpec standard;
  has_or_default("dropout", model.settings.dropout, spec.dropout == standard.dropout);
  has_or_default("drop_path", model.settings.drop_path, spec.drop_path == standard.drop_path);
  has_or_default("qkv_bias", model.settings.qkv_bias, spec.qkv_bias == standard.qkv_bias);
  AB_CHECK(is_rate(spec.dropout) && is_rate(spec.drop_path),
           "dropout {} and drop_path {} must be at least 0 and below 1", spec.dropout, spec.drop_path);
  AB_CHECK(spec.classes >= 1 && spec.image_size >= 1, "{}: {} classes and images of {} pixels must be at least 1",
           model.name, spec.classes, spec.image_size);
}

}  // namespace

const std::vector<std::string>& model_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Model& model : models()) all.push_back(model.name);
    return all;
  }();
  return names;
}

std::int64_t scaled(const ModelSpec& spec, std::int64_t channels) {
  const std::int64_t result = std::llround(static_cast<double>(channels) * spec.width);
  AB_CHECK(result >= 1, "a width of {} leaves nothing of a layer of {}; choose a larger one", spec.width, spec.name);
  return result;
}

std::unique_ptr<Layer> make_model(const ModelSpec& spec, Device device) {
  for (const Model& model : models()) {
    if (model.name != spec.name) continue;
    check_settings(model, spec);
    std::unique_ptr<Layer> layer = model.make(spec, {.seed = spec.seed, .device = device, .draw = spec.draw});
    const std::vector<Param*> params = inventory_of(*layer).params;
    AB_CHECK(spec.init == Init::drawn ||
                 std::ranges::any_of(params, [&](const Param* p) { return changes(*p, spec.init); }),
             "{} has no 3×3 convolution behind its first layer, so --init dirac would change nothing", spec.name);
    if (spec.draw) change_initial(params, spec.init);
    return layer;
  }
  throw Error(ErrorKind::config,
              fmt::format("there is no model '{}'; the models are {}", spec.name, fmt::join(model_names(), ", ")));
}

}  // namespace ab
