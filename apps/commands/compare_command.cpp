// SPDX-License-Identifier: MIT
#include "apps/commands/compare_command.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "apps/report/comparison.h"
#include "apps/report/report.h"
#include "apps/report/terminal.h"
#include "engine/core/atomic_file.h"
#include "engine/core/check.h"

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
  const std::string folder = std::filesystem::path(config.report).parent_path().string();
  AB_CHECK(folder.empty() || std::filesystem::is_directory(folder), "--out {} cannot be written: there is no folder {}",
           config.report, folder);
  std::vector<Run> runs;
  for (const std::string& run : config.folders) runs.push_back(read_run(run));
  make_labels_unique(runs);
  if (!config.report.empty()) write_file_atomically(config.report, report_html(runs));
  print_text(compare_text(runs, terminal_width()));
  if (!config.report.empty()) print_text(fmt::format("\nreport: {}\n", config.report));
  return 0;
}

}  // namespace ab
