#pragma once
// SPDX-License-Identifier: MIT
//
// The settings of AB-training as the program has them: those of ablowrank/options.h, and the preset that they started
// from.

#include <string>
#include <vector>

#include "ablowrank/options.h"
#include "apps/settings/setting.h"
#include "apps/settings/train_config.h"
#include "engine/plan/method_plan.h"

namespace ab {

class Layer;
struct Method;

constexpr const char* kAbName = "ab";

struct AbSettings : AbOptions {
  /// Those of "default".
  AbSettings() {
    train = TrainedFactors::both;
    cut.at = {0.7};
    rank_policy.kind = RankPolicy::Kind::loss_share;
    rank_policy.loss_share = 0.995;
    rank_policy.multiple = 0;  // what suits the device: rank_multiple()
    conv_factors = ConvFactors::spatial;
  }

  std::string preset = "default";
  std::string full_rank_method = "powersgd";  ///< with TrainedFactors::both, until the first cut
  std::string low_rank_method = "powersgd";   ///< of factors, after it

  bool operator==(const AbSettings&) const = default;
};

inline AbSettings& ab_settings(TrainConfig& config) { return config.method_options.of<AbSettings>(); }
inline const AbSettings& ab_settings(const TrainConfig& config) { return config.method_options.of<AbSettings>(); }

/// Starting points: "default" trains both factors, "nodes" too, with gradients averaged inside nodes and weights, then factors,
/// between them every few steps; "groups" trains A or B by group as the paper does, with our own settings;
/// "paper" (VGG16 on CIFAR-10), and one name for each experiment on ImageNet, are what the authors of arXiv 2405.01067
/// released with their code (github.com/Helmholtz-AI-Energy/AB-Training, April 2024).
const std::vector<std::string>& ab_preset_names();
/// In those of the release W, S, D and R are step for step those of the release; a run still synchronises before it validates and when it ends,
/// which the release does not.
AbSettings ab_preset(const std::string& name);

/// The same in a run: a preset, and where the method is AB-training what else goes with it. Both factors come with 16-bit
/// gradients, with PowerSGD at a quarter of the full rank, and "nodes" with nodes as --ranks-per-node has them.
void start_ab_from(const std::string& preset, TrainConfig& config);
void declare_ab(std::vector<Setting>& settings);

/// What ranks r are rounded up to. A setting of 0 stands for what suits the device: on a GPU rows of factors in 16 bits that
/// begin at every 16 bytes, on a CPU nothing.
std::int64_t rank_multiple(const TrainConfig& config);

/// What AbStrategy and plan_ab() take: the settings of the method, and those of the run that concern it.
AbOptions ab_options(const TrainConfig& config);

/// The methods that average gradients before factors are trained together, and of the factors. Throw Error(config) where
/// they cannot.
const Method& full_rank_method(const TrainConfig& config);
const Method& low_rank_method(const TrainConfig& config);

/// The plan of a run whose settings have been checked.
MethodPlan plan_ab_run(const TrainConfig& config, Layer& model, const PlannedRun& run);

}  // namespace ab
