#pragma once
// SPDX-License-Identifier: MIT
//
// Starting points for the settings of AB-training: our own, and those that the authors of arXiv 2405.01067
// released with their code (github.com/Helmholtz-AI-Energy/AB-Training, April 2024).

#include <string>
#include <vector>

#include "apps/config.h"

namespace ab {

/// "default", "paper" (VGG16 on CIFAR-10), and one name for each released ImageNet experiment.
const std::vector<std::string>& ab_preset_names();

/// Replaces `ab` by the preset of that name. W, S, D and R are step for step those of the release; a run still
/// synchronises before it validates and when it ends, which the release does not.
void apply_preset(std::string name, AbConfig& ab);

}  // namespace ab
