// SPDX-License-Identifier: MIT
#include "apps/paper/experiments.h"

#include "apps/paper/scale_config.h"
#include "apps/settings/nearest_name.h"
#include "engine/core/check.h"

namespace ab {

const std::vector<Experiment>& experiments() {
  const auto resnet = [](const char* name, const char* title) {
    return Experiment{.name = name, .title = title, .has_traffic = true, .has_top1_gain = true};
  };
  const auto vit = [](const char* name, const char* title) {
    return Experiment{.name = name, .title = title, .has_traffic = true};
  };
  static const std::vector<Experiment> all{
      {.name = "vgg16_cifar10", .title = "VGG16 on CIFAR-10, 8 ranks, batch 1,024", .has_compression = true},
      resnet("resnet50_2k", "ResNet-50 on ImageNet, groups of 4, 8 ranks, batch 2,048"),
      resnet("resnet50_4k", "ResNet-50 on ImageNet, groups of 4, 16 ranks, batch 4,096"),
      resnet("resnet50_8k", "ResNet-50 on ImageNet, groups of 4, 32 ranks, batch 8,192"),
      resnet("resnet50_16k", "ResNet-50 on ImageNet, groups of 4, 64 ranks, batch 16,384"),
      resnet("resnet50_32k", "ResNet-50 on ImageNet, groups of 4, 128 ranks, batch 32,768"),
      {.name = "resnet50_64k", .title = "ResNet-50 on ImageNet, groups of 4, 256 ranks, batch 65,536"},
      {.name = "resnet50_nogroups_2k", .title = "ResNet-50 on ImageNet without groups, 8 ranks, batch 2,048"},
      resnet("resnet50_nogroups", "ResNet-50 on ImageNet without groups, 16 ranks, batch 4,096"),
      vit("vit_b16_2k", "ViT-B/16 on ImageNet, 8 ranks, batch 2,048"),
      vit("vit_b16_4096", "ViT-B/16 on ImageNet, 16 ranks, batch 4,096"),
  };
  return all;
}

const Experiment& find_experiment(const std::string& name) {
  std::vector<std::string> names;
  for (const Experiment& experiment : experiments()) {
    if (experiment.name == name) return experiment;
    names.push_back(experiment.name);
  }
  const std::string nearest = nearest_name(name, names);
  throw Error(ErrorKind::config,
              fmt::format("there is no experiment '{}'; {}", name,
                          nearest.empty() ? "abtrain reproduce --list shows them" : "did you mean " + nearest + "?"));
}

TrainConfig experiment_config(const Experiment& experiment, const Adjustments& adjustments, ConfigUse use) {
  const std::string& name = experiment.name;
  const std::string& text = paper_configs().at(name);
  const TrainConfig original = resolve_config_text({}, text, name, ConfigUse::plan);
  const TrainConfig asked = resolve_config_text(adjustments.flags, text, name, ConfigUse::plan);
  const int ranks = asked.ranks == original.ranks ? 0 : asked.ranks;
  TrainConfig scaled = scale_config(original, adjustments.scale, ranks);
  scaled.out.clear(), scaled.data_dir.clear();
  return resolve_config_text(adjustments.flags, to_toml(scaled), name, use);
}

}  // namespace ab
