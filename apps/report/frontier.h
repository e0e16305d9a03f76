#pragma once
// SPDX-License-Identifier: MIT
//
// Accuracy against what it costs: runs that differ in their seed alone (and ran on the same device) are one point, with the spread over seeds, and a
// point is dominated where another is at least as accurate and costs less. Runs are compared that trained one model
// on one data set with as many ranks.

#include <string>
#include <vector>

#include "apps/report/svg_chart.h"
#include "apps/train/run_folder.h"

namespace ab {

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
};
/// Bytes sent, of those across nodes, time, computing (the time that was not waited), parameters of the final model.
const std::vector<Cost>& costs();
/// The mean over the group.
double cost_of(const RunGroup& group, const Cost& cost);

/// "resnet20 on cifar10, 4 ranks"; runs of one setup can be compared.
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

}  // namespace ab
