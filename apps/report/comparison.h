#pragma once
// SPDX-License-Identifier: MIT
//
// Runs side by side: what one of them saves against another, the table of all, and accuracy against what it costs: runs that
// differ in their seed alone (and ran on the same device) are one point, with the spread over seeds, and a point is dominated
// where another is at least as accurate and costs less. Runs are compared that trained one model on one data set with as many
// ranks, and validated on the same images.

#include <string>
#include <vector>

#include "apps/report/svg_chart.h"
#include "apps/train/run_folder.h"

namespace ab {

/// The run that savings count against: the first dense one, or none.
const Run* dense_baseline(const std::vector<Run>& runs);
/// Share of wire bytes per rank that `run` sends less than `baseline`; NaN when there is none, or when model or number of
/// ranks differ.
double wire_saving(const Run& run, const Run* baseline);
/// The phases in which any of the runs sent something, in the order in which training meets them.
std::vector<std::string> phases_of(const std::vector<Run>& runs);
/// The word of --comm-dtype, in which gradients travel; "-" where nobody knows.
std::string sent_in(const Run& run);
/// The table, at most `width` columns where that is possible.
std::string compare_text(const std::vector<Run>& runs, int width);

struct RunGroup {
  std::string label;
  std::vector<const Run*> runs;
  double top1 = 0, lowest_top1 = 0, highest_top1 = 0;  ///< the mean over runs, and their range
};

/// The cost of a run, less being better.
struct Cost {
  const char* name;
  NumberStyle style;
  double (*of)(const Run& run);  ///< NaN where it was not measured
  double noise = 0;              ///< by this share two runs differ by chance
};
/// Bytes sent, of those across nodes, time, computing (the time that was not waited), parameters of the final model.
const std::vector<Cost>& costs();
/// The mean over the group.
double cost_of(const RunGroup& group, const Cost& cost);

/// "resnet20 on cifar10, 4 ranks", and the images of the validation where those are not all test images; runs of one setup can be
/// compared.
std::string setup_of(const Run& run);
/// Groups that can be compared with each other, in the order of `runs`; each has at least one.
struct Contest {
  std::string setup;
  std::vector<RunGroup> groups;
  /// The costs that were measured for all groups and are not the same for all.
  std::vector<const Cost*> costs() const;
};
std::vector<Contest> contests_of(const std::vector<Run>& runs);

/// Whether `a` is at least as accurate as `b`, costs no more of anything in `costs`, and is better somewhere.
bool dominates(const RunGroup& a, const RunGroup& b, const std::vector<const Cost*>& costs);
/// The most accurate group that dominates this one; null: there is none.
const RunGroup* dominator_of(const RunGroup& group, const std::vector<RunGroup>& groups,
                             const std::vector<const Cost*>& costs);

/// A table for each contest of at least two groups; empty where there is none.
std::string frontier_text(const std::vector<Run>& runs);
/// A chart for each of its costs: dominated groups grey, a line along those that nobody dominates.
std::string frontier_charts(const std::vector<Run>& runs);

/// One HTML page that compares runs: cards, table, curves of loss, accuracy and bytes, bytes by phase, and the rank of every layer
/// over time. It loads nothing from outside and follows the reader's light or dark setting.
std::string report_html(const std::vector<Run>& runs);

}  // namespace ab
