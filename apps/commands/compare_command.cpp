// SPDX-License-Identifier: MIT
#include "apps/commands/commands.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <set>

#include "apps/report/comparison.h"
#include "apps/report/terminal.h"
#include "engine/core/atomic_file.h"
#include "engine/core/path.h"

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

int run_compare(const std::vector<std::string>& folders, const std::string& page) {
  const std::string out = page.empty() ? "" : out_file(page, kReportPage);
  std::vector<Run> runs;
  for (const std::string& run : folders) runs.push_back(read_run(run));
  make_labels_unique(runs);
  if (!out.empty()) write_file_atomically(out, report_html(runs));
  print_text(compare_text(runs, terminal_width()));
  if (!out.empty()) print_text(fmt::format("\nreport: {}\n", page));
  return 0;
}

Command compare_command(CLI::App& app) {
  CLI::App* parser = app.add_subcommand("compare", "accuracy, bytes and time of several runs side by side");
  const auto folders = std::make_shared<std::vector<std::string>>();
  const auto page = std::make_shared<std::string>();
  parser->add_option("runs", *folders, "run folders; savings count against the first dense one")
      ->required()
      ->transform(expand_home);
  add_path(parser, "--out", *page, "also write a self-contained HTML page with curves")->type_name("FILE");
  return {parser, [folders, page] { return run_compare(*folders, *page); }};
}

}  // namespace ab
