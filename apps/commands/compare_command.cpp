// SPDX-License-Identifier: MIT
#include "apps/commands/commands.h"

#include <algorithm>
#include <set>

#include "apps/report/comparison.h"
#include "apps/report/report.h"
#include "apps/report/terminal.h"
#include "engine/core/atomic_file.h"

namespace ab {
namespace {

/// Runs are told apart by as much of their path as that needs.
void make_labels_unique(std::vector<Run>& runs) {
  std::set<std::string> seen;
  const bool unique = std::all_of(runs.begin(), runs.end(), [&](const Run& r) { return seen.insert(r.label).second; });
  if (unique) return;
  for (Run& run : runs) run.label = run.folder;
}

}  // namespace

int run_compare(const CompareConfig& config) {
  const std::string out = config.report.empty() ? "" : out_file(config.report, kReportPage);
  std::vector<Run> runs;
  for (const std::string& run : config.folders) runs.push_back(read_run(run));
  make_labels_unique(runs);
  if (!out.empty()) write_file_atomically(out, report_html(runs));
  print_text(compare_text(runs, terminal_width()));
  if (!out.empty()) print_text(fmt::format("\nreport: {}\n", config.report));
  return 0;
}

}  // namespace ab
