#pragma once
// SPDX-License-Identifier: MIT
//
// Runs side by side: what one of them saves against another, and the table of all.

#include <string>
#include <vector>

#include "apps/train/run_folder.h"

namespace ab {

/// The run that savings count against: the first dense one, or none.
const Run* dense_baseline(const std::vector<Run>& runs);
/// Share of wire bytes per rank and step that `run` sends less than `baseline`; NaN when there is none, or
/// when model or number of ranks differ.
double wire_saving(const Run& run, const Run* baseline);
/// The phases in which any of the runs sent something, in the order in which training meets them.
std::vector<std::string> phases_of(const std::vector<Run>& runs);
/// The word of --comm-dtype, in which gradients travel; "-" where nobody knows.
std::string sent_in(const Run& run);
/// The table, at most `width` columns where that is possible.
std::string compare_text(const std::vector<Run>& runs, int width);

}  // namespace ab
