#pragma once
// SPDX-License-Identifier: MIT
//
// The experiments of arXiv 2405.01067: the configurations of apps/configs/paper, and what the paper published
// about them; and one of ours, that converges. The body of the paper was not at hand; its abstract (version 2 and later) has the figures
// below, and the settings are those of the code that its authors released.

#include <map>
#include <string>
#include <vector>

#include "apps/settings/config.h"

namespace ab {

/// The mean reduction of network traffic over the ImageNet runs; what was measured how is not known.
inline constexpr double kPublishedTraffic = 0.7031;
/// Parameters of the dense VGG16 over those of the low-rank one.
inline constexpr double kPublishedCompression = 44.14;
/// Top-1 of ResNet-50 above that of data-parallel training; at which batch size is not known.
inline constexpr double kPublishedTop1Gain = 0.0155;

struct Experiment {
  std::string name;   ///< "resnet50_4k"
  std::string title;  ///< one line for people
  /// Which published figures speak of it.
  bool has_traffic = false, has_compression = false, has_top1_gain = false;
  bool is_of_paper = true;
  std::string config{};  ///< of experiment_configs(); empty: its name
};

/// Those of the paper, then ours.
const std::vector<Experiment>& experiments();
/// Throws Error(config) with the nearest name when there is none of that name.
const Experiment& find_experiment(const std::string& name);

/// The texts of apps/configs/paper/*.toml and apps/configs/conv6_cifar.toml by the names of the files, without their endings.
const std::map<std::string, std::string>& experiment_configs();

/// Changes to a configuration before it runs.
struct Adjustments {
  double scale = 1;                ///< scale_config(), of the paper's
  std::vector<FlagValue> flags{};  ///< settings that win over the configuration, scaled or not
};
/// The configuration of an experiment. Throws Error(config) when scale or flags do not fit it.
TrainConfig experiment_config(const Experiment& experiment, const Adjustments& adjustments = {},
                              ConfigUse use = ConfigUse::plan);

/// A run in small: multiplies images, ranks, steps and the steps of all phases (W, S, D, R, warm-up of the rate) by `scale` in
/// (0, 1], as far as there is a batch for every rank, one whole cycle of AB-training and two nodes of two ranks. Model, learning
/// rate and batch per rank stay. `ranks` > 0: that many, whatever the scale. With fewer ranks than before nodes and groups are
/// smaller where they must be; a group that was a node still is one. Throws Error(config) for a scale outside (0, 1].
TrainConfig scale_config(const TrainConfig& config, double scale, int ranks = 0);

}  // namespace ab
