#pragma once
// SPDX-License-Identifier: MIT
//
// A run in small, for machines that cannot have the whole: fewer images, steps and ranks in the same
// proportions. Model, learning rate and batch per rank stay, so an epoch has as many steps as before and the
// run fewer epochs.

#include <string>

#include "apps/config/config.h"

namespace ab {

/// Multiplies images, ranks, steps and the steps of all phases (W, S, D, R, warm-up of the rate) by `scale` in
/// (0, 1]. What remains is large enough to train: a batch for every rank, one whole cycle of AB-training, two
/// nodes of two ranks. `ranks` > 0: that many, whatever the scale. With fewer ranks than before nodes and
/// groups are smaller where they must be; a group that was a node still is one. Throws Error(config) for a
/// scale outside (0, 1].
TrainConfig scale_config(const TrainConfig& config, double scale, int ranks = 0);

/// The settings in which `to` differs from `from`: "steps 15000 → 150, …"; empty when in none. Where data and
/// results are does not count.
std::string changed_settings(const TrainConfig& from, const TrainConfig& to);

}  // namespace ab
