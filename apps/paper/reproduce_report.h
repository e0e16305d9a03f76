#pragma once
// SPDX-License-Identifier: MIT
//
// One experiment beside the paper: published, planned and trained figures in one table.

#include <optional>

#include "apps/paper/paper_traffic.h"

namespace ab {

struct Reproduction {
  const Experiment* experiment = nullptr;
  std::string changes;  ///< what was scaled or set otherwise (changed_settings)
  std::vector<PlannedTraffic> planned;
  struct Trained {
    Summary ab, dense;
  };
  std::optional<Trained> trained;
};

/// Markdown.
std::string reproduce_report(const Reproduction& reproduction);

}  // namespace ab
