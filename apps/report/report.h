#pragma once
// SPDX-License-Identifier: MIT
//
// One HTML page that compares runs: cards, table, curves of loss, accuracy and bytes, bytes by phase, and the
// rank of every layer over time. It loads nothing from outside and follows the reader's light or dark
// setting.

#include <string>
#include <vector>

#include "apps/train/run_folder.h"

namespace ab {

std::string report_html(const std::vector<Run>& runs);

}  // namespace ab
