// SPDX-License-Identifier: MIT
#include "apps/paper/paper_traffic.h"

#include <algorithm>
#include <limits>

#include "ablowrank/groups/phases.h"
#include "apps/methods/ab.h"
#include "apps/report/terminal.h"
#include "apps/train/run_folder.h"
#include "engine/core/check.h"

namespace ab {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr const char* kEvaluation = "evaluation";

double saved(double bytes, double dense_bytes) { return dense_bytes > 0 ? 1 - bytes / dense_bytes : kUnknown; }

double in_phase(const std::map<std::string, double>& bytes, const std::string& phase) {
  const auto at = bytes.find(phase);
  return at == bytes.end() ? 0 : at->second;
}

std::int64_t low_rank_steps(const Summary& run) {
  const auto at = run.steps_by_phase.find(name_of(Phase::low_rank));
  return at == run.steps_by_phase.end() ? 0 : at->second;
}

/// Bytes of a low-rank step against those of a dense step; `bytes` by phase.
double saved_per_step(const Summary& run, const std::map<std::string, double>& bytes, const Summary& dense,
                      const std::map<std::string, double>& dense_bytes) {
  const std::int64_t steps = low_rank_steps(run);
  if (steps == 0 || dense.steps == 0) return kUnknown;
  return saved(in_phase(bytes, name_of(Phase::low_rank)) / static_cast<double>(steps),
               in_phase(dense_bytes, "full") / static_cast<double>(dense.steps));
}

}  // namespace

TrafficFigures traffic_figures(const Summary& run, const Summary& dense) {
  const auto training = [](const Summary& s) {
    return s.wire_bytes_per_rank_total - in_phase(s.wire_bytes_per_rank_by_phase, kEvaluation);
  };
  TrafficFigures figures;
  figures.low_rank_steps = static_cast<double>(low_rank_steps(run)) / static_cast<double>(run.steps);
  figures.compression = run.compression_ratio;
  figures.run = saved(run.wire_bytes_per_rank_total, dense.wire_bytes_per_rank_total);
  figures.run_inter_node = saved(run.inter_node_bytes_per_rank_total, dense.inter_node_bytes_per_rank_total);
  figures.training = saved(training(run), training(dense));
  figures.low_rank = saved_per_step(run, run.wire_bytes_per_rank_by_phase, dense, dense.wire_bytes_per_rank_by_phase);
  figures.training_inter_node = figures.low_rank_inter_node = kUnknown;
  return figures;
}

TrafficFigures traffic_figures(const RunPlan& run, const RunPlan& dense) {
  const auto inter_node = [](const RunPlan& plan) {
    std::map<std::string, double> bytes;
    for (const auto& [phase, traffic] : plan.traffic) bytes[phase] = traffic.inter_node;
    return bytes;
  };
  const std::map<std::string, double> bytes = inter_node(run), dense_bytes = inter_node(dense);
  TrafficFigures figures = traffic_figures(run.summary, dense.summary);
  figures.training_inter_node =
      saved(run.summary.inter_node_bytes_per_rank_total - in_phase(bytes, kEvaluation),
            dense.summary.inter_node_bytes_per_rank_total - in_phase(dense_bytes, kEvaluation));
  figures.low_rank_inter_node = saved_per_step(run.summary, bytes, dense.summary, dense_bytes);
  return figures;
}

namespace {

constexpr double kLowestRatio = 1e-6;  // r = 1 everywhere

/// The ratio, the run of its model, or its own policy where that needs no trained model; or else some fractions.
std::vector<RankSource> rank_sources(const TrainConfig& config, const RankChoice& choice) {
  if (choice.ratio > 0) return {{fmt::format("{:g}", choice.ratio), choice.ratio}};
  for (const std::string& run : choice.runs)
    if (read_summary(run).model == config.model) return {{"measured", 0, run}};
  if (ab_settings(config).rank_policy.ratio > 0) return {{"as configured"}};
  return {{"1/16", 1.0 / 16}, {"1/8", 1.0 / 8}, {"1/4", 1.0 / 4}, {"1/2", 1.0 / 2}};
}

/// A run and its dense twin; the twin is planned once.
class PlannedRunPair {
 public:
  explicit PlannedRunPair(const TrainConfig& config) : config_(config) {
    TrainConfig dense = config;
    dense.method = "dense", dense.comm_dtype = DType::float32;
    dense_ = plan_run(dense, {});
  }

  PlannedTraffic at(const RankSource& source) const {
    const RunPlan plan = plan_run(config_, {.ratio = source.ratio, .factors_from = source.run});
    std::vector<double> fractions;
    for (const LayerRank& layer : plan.cut_r)
      fractions.push_back(static_cast<double>(layer.r) / static_cast<double>(layer.n));
    PlannedTraffic planned{source, 1, traffic_figures(plan, dense_)};
    if (!fractions.empty()) {
      const auto middle = fractions.begin() + static_cast<std::ptrdiff_t>(fractions.size() / 2);
      std::nth_element(fractions.begin(), middle, fractions.end());
      planned.median_fraction = *middle;
    }
    return planned;
  }

 private:
  TrainConfig config_;
  RunPlan dense_;
};

struct Row {
  const Experiment* experiment;
  PlannedTraffic planned;
};

std::string rows_table(const std::vector<Row>& rows) {
  std::vector<std::string> headings{"experiment", "r/n", "low-rank steps"};
  for (const TrafficDefinition& definition : kTrafficDefinitions) headings.push_back(definition.heading);
  headings.push_back("compression");
  TextTable table(headings);
  for (const Row& row : rows) {
    const TrafficFigures& figures = row.planned.figures;
    std::vector<std::string> cells{row.experiment->name, rank_text(row.planned), percent(figures.low_rank_steps)};
    for (const TrafficDefinition& definition : kTrafficDefinitions) cells.push_back(percent(figures.*definition.saved));
    cells.push_back(fmt::format("{:.2f} : 1", figures.compression));
    table.add(std::move(cells));
  }
  return table.markdown();
}

std::string found_cell(const RankFractionSearch& found) {
  if (found.fraction) return fmt::format("{:.3f}", *found.fraction);
  if (found.at_lowest_rank < kPublishedTraffic)
    return fmt::format("none: {} with r = 1", percent(found.at_lowest_rank));
  return fmt::format("none: {} with r = n", percent(found.at_full_rank));
}

/// The sources of ranks that all `runs` ImageNet runs were planned with, in order.
std::vector<std::string> common_labels(const std::vector<Row>& rows, std::size_t runs) {
  std::vector<std::string> labels;
  std::map<std::string, std::size_t> planned;
  for (const Row& row : rows)
    if (const std::string& label = row.planned.source.label; row.experiment->has_traffic && ++planned[label] == runs)
      labels.push_back(label);
  return labels;
}

/// Over the experiments that the published figure speaks of, by one way to count.
struct MeanTraffic {
  const TrafficDefinition* definition;
  std::vector<double> saved;  ///< at each label
  RankFractionSearch found;   ///< for the published figure
};

std::vector<MeanTraffic> mean_traffic(const std::vector<Row>& rows, const std::vector<std::string>& labels,
                                      const std::vector<TrainConfig>& configs) {
  std::vector<MeanTraffic> means;
  for (const TrafficDefinition& definition : kTrafficDefinitions) {
    MeanTraffic& mean =
        means.emplace_back(MeanTraffic{&definition, {}, find_rank_fraction(configs, definition, kPublishedTraffic)});
    for (const std::string& label : labels) {
      double sum = 0;
      for (const Row& row : rows)
        if (row.experiment->has_traffic && row.planned.source.label == label)
          sum += row.planned.figures.*definition.saved;
      mean.saved.push_back(sum / static_cast<double>(configs.size()));
    }
  }
  return means;
}

std::string means_table(const std::vector<MeanTraffic>& means, const std::vector<std::string>& labels) {
  std::vector<std::string> headings{"saved, mean over eight ImageNet runs"};
  headings.insert(headings.end(), labels.begin(), labels.end());
  headings.push_back(fmt::format("r/n for {}", percent(kPublishedTraffic)));
  TextTable table(headings);
  for (const MeanTraffic& mean : means) {
    std::vector<std::string> cells{mean.definition->name};
    for (const double saved : mean.saved) cells.push_back(percent(saved));
    cells.push_back(found_cell(mean.found));
    table.add(std::move(cells));
  }
  return table.markdown();
}

/// Three sentences; the first one goes where plans have no ranks r in common.
std::string result_of(const std::vector<MeanTraffic>& means, const std::vector<std::string>& labels) {
  const MeanTraffic& run = means[0];
  std::string text;
  if (!labels.empty())
    text = fmt::format(
        "As planned, AB-training saves {} of all bytes at r/n {}{}, in the mean over eight ImageNet runs.\n",
        percent(run.saved.back()), labels.back(),
        labels.size() > 1 ? fmt::format(" and {} at {}", percent(run.saved.front()), labels.front()) : "");
  std::vector<std::string> fitting;
  for (const MeanTraffic& mean : means)
    if (mean.found.fraction)
      fitting.push_back(fmt::format("{}, at r/n = {:.3f}", mean.definition->name, *mean.found.fraction));
  return text + fmt::format("With r = 1 that is {}; the paper published {}.\n{} of {} ways to count reach that{}{}.\n",
                            percent(run.found.at_lowest_rank), percent(kPublishedTraffic), fitting.size(), means.size(),
                            fitting.empty() ? "" : ": ", fmt::join(fitting, "; "));
}

constexpr const char* kTrafficNotes =
    R"(Saved against the same run in dense data-parallel training with float32 gradients; bytes on the wire under
ring algorithms, mean over ranks:
- run: everything that the whole run sends; nodes: of that, what crosses nodes;
- training: the same without validations, for which groups rejoin here, but not in the authors' release;
- low-rank: a low-rank step against a step of dense training.

r/n is that of every weight that is split; measured: that of a run's last split (in brackets: the median over
weights). Compression: numbers that the dense model stores : those of the model that the run leaves.
The paper published a mean reduction of {}, and what that counts is not known.
)";

}  // namespace

void check_rank_choice(const RankChoice& choice, const std::vector<TrainConfig>& configs) {
  for (const std::string& run : choice.runs) {
    const std::string model = read_summary(run).model;
    AB_CHECK(std::any_of(configs.begin(), configs.end(), [&](const TrainConfig& c) { return c.model == model; }),
             "--factors-from {} is a run of {}, which is not the model here", run, model);
  }
}

std::string rank_text(const PlannedTraffic& planned) {
  const std::string& label = planned.source.label;
  return planned.source.ratio > 0 ? label : fmt::format("{} ({:.3g})", label, planned.median_fraction);
}

std::vector<PlannedTraffic> plan_experiment(const TrainConfig& config, const RankChoice& choice) {
  const PlannedRunPair run(config);
  std::vector<PlannedTraffic> planned;
  for (const RankSource& source : rank_sources(config, choice)) planned.push_back(run.at(source));
  return planned;
}

RankFractionSearch find_rank_fraction(const std::vector<TrainConfig>& configs, const TrafficDefinition& definition,
                                      double target) {
  const std::vector<PlannedRunPair> runs(configs.begin(), configs.end());
  const auto mean_at = [&](double ratio) {
    double sum = 0;
    for (const PlannedRunPair& run : runs) sum += run.at({"", ratio}).figures.*definition.saved;
    return sum / static_cast<double>(runs.size());
  };
  double low = kLowestRatio, high = 1;
  RankFractionSearch found{std::nullopt, mean_at(low), mean_at(high)};
  double at_low = found.at_lowest_rank, at_high = found.at_full_rank;
  if (!(at_low >= target && target >= at_high)) return found;
  // Bytes grow linearly with r, but for rounding: interpolation is there after a few rounds.
  for (int i = 0; i < 4 && at_low > at_high; ++i) {
    const double middle = low + (high - low) * (at_low - target) / (at_low - at_high);
    const double at_middle = mean_at(middle);
    found.fraction = middle;
    (at_middle >= target ? low : high) = middle;
    (at_middle >= target ? at_low : at_high) = at_middle;
  }
  if (!found.fraction) found.fraction = high;
  return found;
}

PaperTraffic plan_paper_traffic(const Adjustments& adjustments, const RankChoice& choice) {
  std::vector<Row> rows;
  std::vector<TrainConfig> all, imagenet;
  for (const Experiment& experiment : experiments()) {
    if (!experiment.is_of_paper) break;
    all.push_back(experiment_config(experiment, adjustments));
    if (experiment.has_traffic) imagenet.push_back(all.back());
  }
  check_rank_choice(choice, all);
  for (std::size_t i = 0; i < all.size(); ++i)
    for (PlannedTraffic& planned : plan_experiment(all[i], choice))
      rows.push_back({&experiments()[i], std::move(planned)});
  const std::vector<std::string> labels = common_labels(rows, imagenet.size());
  const std::vector<MeanTraffic> means = mean_traffic(rows, labels, imagenet);
  const std::string result = result_of(means, labels);
  return {result, "# Traffic of the paper's experiments, planned\n\n" + result + "\n" +
                      fmt::format(kTrafficNotes, percent(kPublishedTraffic)) +
                      fmt::format("\n{}\n{}", rows_table(rows), means_table(means, labels))};
}

}  // namespace ab
