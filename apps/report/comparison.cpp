// SPDX-License-Identifier: MIT
#include "apps/report/comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>

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

bool differ_in_seed_alone(const Run& a, const Run& b) {
  if (!a.config || !b.config) return false;
  const TrainConfig &x = *a.config, &y = *b.config;  // what may change within a run changes its time
  const auto costs = [](const TrainConfig& c) {
    return std::tie(c.device, c.threads, c.transport, c.autotune, c.bucket_mb, c.cuda_graph, c.loader_threads,
                    c.cache_gb, c.cache_disk);
  };
  if (costs(x) != costs(y)) return false;
  TrainConfig same_seed = *b.config;
  same_seed.seed = a.config->seed;
  return differing_settings(*a.config, same_seed).empty();
}

/// The common beginning of the names of runs.
std::string common_label(const std::vector<const Run*>& runs) {
  std::string label = runs[0]->label;
  if (runs.size() == 1) return label;
  for (const Run* run : runs) {
    const auto [end, unused] = std::mismatch(label.begin(), label.end(), run->label.begin(), run->label.end());
    label.erase(end, label.end());
  }
  while (!label.empty() && std::string("_-./ ").find(label.back()) != std::string::npos) label.pop_back();
  return label.empty() ? runs[0]->summary.method : label;
}

void describe(RunGroup& group) {
  group.label = common_label(group.runs);
  group.lowest_top1 = std::numeric_limits<double>::infinity();
  group.highest_top1 = -group.lowest_top1;
  for (const Run* run : group.runs) {
    const double top1 = run->summary.final_val_top1;
    group.top1 += top1 / static_cast<double>(group.runs.size());
    group.lowest_top1 = std::min(group.lowest_top1, top1);
    group.highest_top1 = std::max(group.highest_top1, top1);
  }
}

/// "3", or "3 (2 seeds)".
std::string runs_text(const RunGroup& group) {
  std::set<std::uint64_t> seeds;
  for (const Run* run : group.runs) seeds.insert(run->summary.seed);
  const std::string runs = std::to_string(group.runs.size());
  return seeds.size() == group.runs.size() ? runs : fmt::format("{} ({})", runs, counted(std::ssize(seeds), "seed"));
}

/// That of its first run in the other charts.
int colour_of(const RunGroup& group, const std::vector<Run>& runs) {
  return static_cast<int>(group.runs[0] - runs.data());
}

double computing_seconds(const Run& run) {
  if (run.summary.waiting_seconds_by_phase.empty()) return std::numeric_limits<double>::quiet_NaN();
  return run.summary.train_seconds - exposed_seconds(run.summary);
}

}  // namespace

const Run* dense_baseline(const std::vector<Run>& runs) {
  const auto at = std::ranges::find_if(runs, [](const Run& run) { return run.summary.method == kBaseline; });
  return at == runs.end() ? nullptr : &*at;
}

double wire_saving(const Run& run, const Run* baseline) {
  const bool comparable = baseline && baseline != &run && run.summary.model == baseline->summary.model &&
                          run.summary.parameters_full == baseline->summary.parameters_full &&
                          run.summary.world_size == baseline->summary.world_size &&
                          baseline->summary.wire_bytes_per_rank_total > 0;
  if (!comparable) return std::numeric_limits<double>::quiet_NaN();
  return 1 - run.summary.wire_bytes_per_rank_total / baseline->summary.wire_bytes_per_rank_total;
}

std::vector<std::string> phases_of(const std::vector<Run>& runs) {
  std::vector<std::string> met;
  const auto add = [&](const Run& run, const std::string& phase) {
    const auto sent = run.summary.wire_bytes_per_rank_by_phase.find(phase);
    if (sent == run.summary.wire_bytes_per_rank_by_phase.end() || sent->second <= 0) return;
    if (std::ranges::find(met, phase) == met.end()) met.push_back(phase);
  };
  for (const Run& run : runs)
    for (const auto& [phase, bytes] : run.summary.wire_bytes_per_rank_by_phase)
      if (!run.summary.steps_by_phase.contains(phase)) add(run, phase);  // before the first step
  for (const Run& run : runs)
    for (const StepMetrics& m : run.steps) add(run, m.phase);
  for (const Run& run : runs)
    for (const auto& [phase, bytes] : run.summary.wire_bytes_per_rank_by_phase)
      add(run, phase);  // too short for a line of metrics
  return met;
}

std::string sent_in(const Run& run) {
  return run.config ? std::get<std::string>(find_setting("comm_dtype")->get(*run.config)) : "-";
}

std::string compare_text(const std::vector<Run>& runs, int width) {
  const Run* baseline = dense_baseline(runs);
  const bool one_setup = std::ranges::all_of(runs, [&](const Run& run) { return setup_of(run) == setup_of(runs[0]); });
  std::vector<std::string> headings{"run",   "method", "steps", "top-1",    "best",    "sent in",    "wire/rank",
                                    "saved", "model",  "time",  "images/s", "waiting", "compression"};
  if (!one_setup) headings.push_back("setup");
  const int name_width = std::max(20, width - 116);
  TextTable table(headings, {1, headings.size() - (one_setup ? 0 : 1)});
  for (const Run& run : runs) {
    const Summary& s = run.summary;
    std::vector<std::string> cells{shorten(run.label, name_width),
                                   without_controls(s.method),
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

std::string setup_of(const Run& run) {
  const Summary& s = run.summary;
  std::string setup = without_controls(fmt::format("{} on {}, ", s.model, s.dataset)) + counted(s.world_size, "rank");
  if (run.config && run.config->val_from_train > 0)
    setup += fmt::format(", {} to validate on", counted(run.config->val_from_train, "training image"));
  else if (run.config && run.config->val_samples > 0) setup += ", " + counted(run.config->val_samples, "test image");
  return setup;
}

const std::vector<Cost>& costs() {
  static const std::vector<Cost> all{
      {"sent per rank", NumberStyle::bytes, [](const Run& run) { return run.summary.sent_bytes_per_rank_total; }},
      {"sent to other nodes", NumberStyle::bytes,
       [](const Run& run) { return run.summary.inter_node_sent_bytes_per_rank_total; }},
      {"time", NumberStyle::seconds, [](const Run& run) { return run.summary.train_seconds; }, 0.05},
      {"computing", NumberStyle::seconds, computing_seconds, 0.05},
      {"parameters", NumberStyle::plain,
       [](const Run& run) { return static_cast<double>(run.summary.parameters_final); }}};
  return all;
}

double cost_of(const RunGroup& group, const Cost& cost) {
  double sum = 0;
  for (const Run* run : group.runs) sum += cost.of(*run);
  return sum / static_cast<double>(group.runs.size());
}

std::vector<const Cost*> Contest::costs() const {
  std::vector<const Cost*> measured;
  for (const Cost& cost : ab::costs()) {
    const double first = cost_of(groups[0], cost);
    const auto is_finite = [&](const RunGroup& group) { return std::isfinite(cost_of(group, cost)); };
    const auto differs = [&](const RunGroup& group) { return cost_of(group, cost) != first; };
    if (std::ranges::all_of(groups, is_finite) && std::ranges::any_of(groups, differs)) measured.push_back(&cost);
  }
  return measured;
}

std::vector<Contest> contests_of(const std::vector<Run>& runs) {
  std::vector<Contest> contests;
  for (const Run& run : runs) {
    const std::string setup = setup_of(run);
    auto contest = std::ranges::find(contests, setup, &Contest::setup);
    if (contest == contests.end()) contest = contests.insert(contest, Contest{setup, {}});
    auto group =
        std::ranges::find_if(contest->groups, [&](const RunGroup& g) { return differ_in_seed_alone(*g.runs[0], run); });
    if (group == contest->groups.end()) group = contest->groups.insert(group, RunGroup{});
    group->runs.push_back(&run);
  }
  for (Contest& contest : contests)
    for (RunGroup& group : contest.groups) describe(group);
  return contests;
}

bool dominates(const RunGroup& a, const RunGroup& b, const std::vector<const Cost*>& costs) {
  bool better = a.top1 > b.top1;
  if (a.top1 < b.top1) return false;
  for (const Cost* cost : costs) {
    const double of_a = cost_of(a, *cost), of_b = cost_of(b, *cost);
    if (of_a > of_b * (1 + cost->noise)) return false;
    better |= of_a * (1 + cost->noise) < of_b;
  }
  return better;
}

const RunGroup* dominator_of(const RunGroup& group, const std::vector<RunGroup>& groups,
                             const std::vector<const Cost*>& costs) {
  const RunGroup* best = nullptr;
  for (const RunGroup& other : groups)
    if (dominates(other, group, costs) && (!best || other.top1 > best->top1)) best = &other;
  return best;
}

std::string frontier_text(const std::vector<Run>& runs) {
  std::string text;
  for (const Contest& contest : contests_of(runs)) {
    if (contest.groups.size() < 2) continue;
    const std::vector<const Cost*> measured = contest.costs();
    std::vector<std::string> headings{"mean over runs", "runs", "top-1", "from", "to"};
    for (const Cost* cost : measured) headings.push_back(cost->name);
    headings.push_back("dominated by");
    TextTable table(headings, {headings.size() - 1});
    for (const RunGroup& group : contest.groups) {
      std::vector<std::string> cells{shorten(group.label, 30), runs_text(group), percent(group.top1),
                                     percent(group.lowest_top1), percent(group.highest_top1)};
      for (const Cost* cost : measured) cells.push_back(number_text(cost_of(group, *cost), cost->style));
      const RunGroup* dominator = dominator_of(group, contest.groups, measured);
      cells.push_back(dominator ? shorten(dominator->label, 30) : "-");
      table.add(std::move(cells));
    }
    text += fmt::format("\n{}, accuracy against everything in this table together:\n\n{}", contest.setup, table.str());
  }
  return text;
}

std::string frontier_charts(const std::vector<Run>& runs) {
  std::string html;
  const std::vector<Contest> contests = contests_of(runs);
  for (const Contest& contest : contests) {
    if (contest.groups.size() < 2) continue;
    const std::string where = contests.size() > 1 ? ": " + contest.setup : "";
    const bool has_seeds =
        std::ranges::any_of(contest.groups, [](const RunGroup& group) { return group.runs.size() > 1; });
    for (const Cost* cost : contest.costs()) {
      const char* bytes = cost->style == NumberStyle::bytes ? "bytes " : "";
      FrontierChart chart{
          fmt::format("Accuracy against {}{}{}", bytes, cost->name, where),
          fmt::format("The Pareto front joins the runs that no other dominates, by more accuracy at less cost{}.",
                      has_seeds ? "; a vertical line spans seeds" : ""),
          {cost->name, cost->style},
          {"top-1", NumberStyle::percent},
          {}};
      for (const RunGroup& group : contest.groups)
        chart.points.push_back({group.label, cost_of(group, *cost), group.top1, group.lowest_top1, group.highest_top1,
                                colour_of(group, runs), dominator_of(group, contest.groups, {cost}) != nullptr});
      html += draw(chart);
    }
  }
  return html;
}

}  // namespace ab
