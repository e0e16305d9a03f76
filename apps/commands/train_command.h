#pragma once
// SPDX-License-Identifier: MIT
//
// What main() hands over to.

#include <string>

#include "apps/config/config.h"

namespace ab {

/// abtrain train: trains as configured and writes config.toml, metrics.jsonl, summary.json and
/// model.safetensors to config.out. Returns the exit code; throws ab::Error.
int run_train(const TrainConfig& config);

}  // namespace ab
