// SPDX-License-Identifier: MIT
#include "apps/paper/experiments.h"

#include <algorithm>
#include <cmath>

#include "apps/methods/ab.h"
#include "apps/settings/setting.h"
#include "data/datasets.h"

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
      {.name = "cifar10_94",
       .title = "six convolutions on CIFAR-10, 4 ranks, batch 1,024: dense, ab and late-cut side by side",
       .is_of_paper = false,
       .config = "conv6_cifar"},
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
                          nearest.empty() ? "abtrain reproduce lists them" : "did you mean " + nearest + "?"));
}

TrainConfig experiment_config(const Experiment& experiment, const Adjustments& adjustments, ConfigUse use) {
  const std::string& name = experiment.name;
  const std::string& text = experiment_configs().at(experiment.config.empty() ? name : experiment.config);
  if (!experiment.is_of_paper) return resolve_config_text(adjustments.flags, text, name, use);
  TrainConfig original = resolve_config_text({}, text, name, ConfigUse::plan);
  const TrainConfig asked = resolve_config_text(adjustments.flags, text, name, ConfigUse::plan);
  original.batch_size = asked.batch_size;  // a scaled run keeps the images of one step, a batch for every rank
  const bool gives_ranks = std::ranges::find(adjustments.flags, "ranks", &FlagValue::first) != adjustments.flags.end();
  TrainConfig scaled = scale_config(original, adjustments.scale, gives_ranks ? asked.ranks : 0);
  scaled.out.clear(), scaled.data_dir.clear();
  return resolve_config_text(adjustments.flags, to_toml(scaled), name, use);
}

namespace {

/// Two nodes, or groups, of two: fewer would have nothing to average within a group.
constexpr int kFewestRanks = 4;

/// `count` in proportion; something stays something.
std::int64_t in_proportion(std::int64_t count, double scale) {
  if (count <= 0) return count;
  return std::max<std::int64_t>(1, std::llround(static_cast<double>(count) * scale));
}

/// At least two nodes; a group that was a node, or the world, still is.
void fit_ranks(TrainConfig& config, int ranks) {
  const int world_before = config.ranks, node_before = std::max(1, config.ranks_per_node);
  AbOptions& ab = ab_settings(config);
  const int group_before = ab.group_size;
  config.ranks_per_node = std::clamp(ranks / 2, 1, node_before);
  config.ranks = std::max(2, ranks / config.ranks_per_node * config.ranks_per_node);
  if (group_before >= world_before) ab.group_size = config.ranks;
  else if (group_before > 0) ab.group_size = std::max(1, group_before * config.ranks_per_node / node_before);
}

void scale_steps(TrainConfig& config, double scale) {
  PhaseSchedule& ab = ab_settings(config).schedule;
  const double last_cycle = static_cast<double>(config.steps % ab.cycle_steps) / static_cast<double>(ab.cycle_steps);
  ab.first_split = in_proportion(ab.first_split, scale);
  ab.cycle_steps = std::max<std::int64_t>(2, in_proportion(ab.cycle_steps, scale));
  ab.full_rank_steps = std::min(in_proportion(ab.full_rank_steps, scale), ab.cycle_steps - 1);
  ab.rebound_steps = in_proportion(ab.rebound_steps, scale);
  // It ends where the whole experiment does, with factors or at full rank.
  const auto last_steps = static_cast<std::int64_t>(std::round(last_cycle * static_cast<double>(ab.cycle_steps)));
  const double cycles =
      static_cast<double>(in_proportion(config.steps, scale) - last_steps) / static_cast<double>(ab.cycle_steps);
  config.steps = std::max(static_cast<std::int64_t>(std::round(cycles)) * ab.cycle_steps + last_steps,
                          ab.first_split + ab.cycle_steps);
  config.warmup_steps = std::min(in_proportion(config.warmup_steps, scale), config.steps - 1);  // else it never ends
}

void scale_images(TrainConfig& config, double scale) {
  const DataShape& data = find_dataset(config.dataset).shape;
  const std::int64_t one_step = std::min(config.batch_size * config.ranks, data.train);
  config.train_samples = std::max(in_proportion(data.train, scale), one_step);
  config.val_samples = in_proportion(data.test, scale);
}

}  // namespace

TrainConfig scale_config(const TrainConfig& original, double scale, int ranks) {
  AB_CHECK(scale > 0 && scale <= 1, "--scale is a share above 0 and at most 1, got {}", scale);
  TrainConfig config = original;
  if (ranks <= 0)
    ranks = std::max(std::min(kFewestRanks, original.ranks), static_cast<int>(std::lround(scale * original.ranks)));
  if (ranks != original.ranks) fit_ranks(config, ranks);
  if (scale == 1) return config;
  scale_steps(config, scale);
  scale_images(config, scale);
  return config;
}

}  // namespace ab
