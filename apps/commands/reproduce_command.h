#pragma once
// SPDX-License-Identifier: MIT

#include <string>
#include <vector>

#include "apps/paper/paper_traffic.h"

namespace ab {

/// The command line of abtrain reproduce.
struct ReproduceCommand {
  std::string experiment;  ///< a name of experiments(), or "all"; empty: list them
  bool list = false;
  bool dry_run = false;    ///< plan only
  std::string out;         ///< folder; runs/reproduce/NAME when not given and something is trained
  bool overwrite = false;  ///< train anew what the folder has already
  Adjustments adjustments;
  RankChoice ranks;
};

/// abtrain reproduce: trains an experiment of the paper twice, dense and by AB-training, into OUT/dense and
/// OUT/ab (runs that are there already are kept, unfinished ones go on at their checkpoint), or only plans
/// it; prints what the paper published beside it, and writes that to OUT/reproduce.md. Returns the exit code;
/// throws ab::Error.
int run_reproduce(const ReproduceCommand& command);

}  // namespace ab
