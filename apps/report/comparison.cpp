// SPDX-License-Identifier: MIT
#include "apps/report/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "apps/report/frontier.h"
#include "apps/report/terminal.h"
#include "apps/settings/setting.h"

namespace ab {
namespace {

std::string waiting(const Summary& s) {
  if (s.waiting_seconds_by_phase.empty()) return "-";
  return human_seconds(exposed_seconds(s));
}

std::string compression(const Summary& s) {
  return std::isfinite(s.compression_seconds) ? human_seconds(s.compression_seconds) : "-";
}

std::string why_not_measured(const std::vector<Run>& runs) {
  for (const Run& run : runs)
    if (!run.summary.waiting_not_measured.empty())
      return fmt::format("(waiting, compression: not measured: {})\n", run.summary.waiting_not_measured);
  return "";
}

std::string phase_table(const std::vector<Run>& runs, int name_width) {
  const std::vector<std::string> phases = phases_of(runs);
  if (phases.empty()) return "";
  std::vector<std::string> headings{"wire bytes per rank"};
  headings.insert(headings.end(), phases.begin(), phases.end());
  TextTable table(headings);
  for (const Run& run : runs) {
    std::vector<std::string> cells{shorten(run.label, name_width)};
    for (const std::string& phase : phases) {
      const auto& by_phase = run.summary.wire_bytes_per_rank_by_phase;
      const auto& steps = run.summary.steps_by_phase;
      const auto bytes = by_phase.find(phase);
      const auto count = steps.find(phase);
      std::string cell = bytes == by_phase.end() ? "-" : human_bytes(bytes->second);
      if (count != steps.end()) cell += fmt::format(" in {}", count->second);
      cells.push_back(std::move(cell));
    }
    table.add(std::move(cells));
  }
  return fmt::format("\n{}(bytes in N steps of the phase)\n", table.str());
}

}  // namespace

const Run* dense_baseline(const std::vector<Run>& runs) {
  const auto at =
      std::find_if(runs.begin(), runs.end(), [](const Run& run) { return run.summary.method == kBaseline; });
  return at == runs.end() ? nullptr : &*at;
}

double wire_saving(const Run& run, const Run* baseline) {
  const auto per_step = [](const Summary& s) { return s.wire_bytes_per_rank_total / static_cast<double>(s.steps); };
  const bool comparable = baseline && baseline != &run && run.summary.model == baseline->summary.model &&
                          run.summary.parameters_full == baseline->summary.parameters_full &&
                          run.summary.world_size == baseline->summary.world_size && run.summary.steps > 0 &&
                          baseline->summary.steps > 0 && baseline->summary.wire_bytes_per_rank_total > 0;
  if (!comparable) return std::numeric_limits<double>::quiet_NaN();
  return 1 - per_step(run.summary) / per_step(baseline->summary);
}

std::vector<std::string> phases_of(const std::vector<Run>& runs) {
  std::vector<std::string> met;
  const auto add = [&](const std::string& phase) {
    if (std::find(met.begin(), met.end(), phase) == met.end()) met.push_back(phase);
  };
  const auto sent = [](const Run& run, const std::string& phase) {
    const auto at = run.summary.wire_bytes_per_rank_by_phase.find(phase);
    return at != run.summary.wire_bytes_per_rank_by_phase.end() && at->second > 0;
  };
  for (const Run& run : runs)
    for (const auto& [phase, bytes] : run.summary.wire_bytes_per_rank_by_phase)
      if (bytes > 0 && !run.summary.steps_by_phase.contains(phase)) add(phase);  // before the first step
  for (const Run& run : runs)
    for (const StepMetrics& m : run.steps)
      if (sent(run, m.phase)) add(m.phase);
  for (const Run& run : runs)
    for (const auto& [phase, bytes] : run.summary.wire_bytes_per_rank_by_phase)
      if (bytes > 0) add(phase);  // phases too short for a line of metrics
  return met;
}

std::string sent_in(const Run& run) {
  return run.config ? std::get<std::string>(find_setting("comm_dtype")->get(*run.config)) : "-";
}

std::string compare_text(const std::vector<Run>& runs, int width) {
  const Run* baseline = dense_baseline(runs);
  const bool one_setup =
      std::all_of(runs.begin(), runs.end(), [&](const Run& run) { return setup_of(run) == setup_of(runs[0]); });
  std::vector<std::string> headings{"run",   "method", "steps", "top-1",    "best",    "sent in",    "wire/rank",
                                    "saved", "model",  "time",  "images/s", "waiting", "compression"};
  if (!one_setup) headings.push_back("setup");
  const int name_width = std::max(20, width - 116);
  TextTable table(headings, {1, headings.size() - (one_setup ? 0 : 1)});
  for (const Run& run : runs) {
    const Summary& s = run.summary;
    std::vector<std::string> cells{shorten(run.label, name_width),
                                   s.method,
                                   std::to_string(s.steps),
                                   percent(s.final_val_top1),
                                   percent(s.best_val_top1),
                                   sent_in(run),
                                   human_bytes(s.wire_bytes_per_rank_total),
                                   saved_text(wire_saving(run, baseline)),
                                   fmt::format("{:.2f} : 1", s.compression_ratio),
                                   human_seconds(s.train_seconds),
                                   fmt::format("{:.0f}", s.images_per_second),
                                   waiting(s),
                                   compression(s)};
    if (!one_setup) cells.push_back(setup_of(run));
    table.add(std::move(cells));
  }
  const std::string title = one_setup && !runs.empty() ? setup_of(runs[0]) + "\n\n" : "";
  return title + table.str() + why_not_measured(runs) + phase_table(runs, name_width) + frontier_text(runs);
}

}  // namespace ab
