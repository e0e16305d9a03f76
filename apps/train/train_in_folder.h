#pragma once
// SPDX-License-Identifier: MIT
//
// A whole run with its folder: what `abtrain train` does, for programs of one's own. config.out gets config.toml,
// metrics.jsonl, checkpoints and, at the end, model.safetensors and summary.json (run_folder.h).
// apps/README.md has an example.

#include <optional>

#include "apps/train/build_run.h"
#include "apps/train/train_loop.h"

namespace ab {

/// Begins a run, or goes on with that in the folder as config.resume says; nothing comes back when it is complete
/// already. `listener` hears what is written too, on rank 0. Collective over `world`, whose ranks share the folder's
/// disk. Throws what train() does, Error(config) when settings do not fit each other, the world, or what the folder
/// holds, and Error(data) when ranks have other images than rank 0. `is_checked`: check_run() has been asked already.
std::optional<TrainResult> train_in_folder(const TrainConfig& config, Comm& world, const TrainAndTest& data,
                                           const TrainListener& listener = {}, bool is_checked = false);

}  // namespace ab
