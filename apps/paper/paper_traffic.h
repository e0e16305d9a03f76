#pragma once
// SPDX-License-Identifier: MIT
//
// The traffic of experiments, planned: which ranks r a plan assumes, and the table of all experiments beside
// the paper's published mean.

#include <optional>
#include <string>
#include <vector>

#include "apps/paper/experiments.h"
#include "apps/paper/traffic_figures.h"

namespace ab {

/// Where the ranks r of a plan come from. The paper cuts by singular values, which only a trained model has.
struct RankSource {
  std::string label;  ///< "1/4", "as configured", "measured"
  double ratio = 0;   ///< r = ratio · n
  std::string run{};  ///< or those of this trained run
};

struct RankChoice {
  double ratio = 0;                 ///< --ratio
  std::vector<std::string> runs{};  ///< --factors-from: runs of one or several models
};
/// Throws Error(config) when one of the runs is of a model that none of `configs` trains.
void check_rank_choice(const RankChoice& choice, const std::vector<TrainConfig>& configs);
/// The sources for a configuration: the ratio, the run of its model, or its own policy where that needs no
/// trained model; without any of them the fractions 1/16, 1/8, 1/4 and 1/2.
std::vector<RankSource> rank_sources(const TrainConfig& config, const RankChoice& choice);

/// A run planned with one source of ranks, beside its dense twin.
struct PlannedTraffic {
  RankSource source;
  double median_fraction = 1;  ///< of r/n over the weights that are cut
  TrafficFigures figures;
};
/// "1/4", or with what the plan found: "measured (0.31)".
std::string rank_text(const PlannedTraffic& planned);
std::vector<PlannedTraffic> plan_experiment(const TrainConfig& config, const RankChoice& choice);

/// The rank fraction r/n with which the mean over `configs` saves `target`; nothing when none does.
struct RankFractionSearch {
  std::optional<double> fraction;
  double at_lowest_rank = 0, at_full_rank = 0;  ///< saved with r = 1 and with r = n
};
RankFractionSearch find_rank_fraction(const std::vector<TrainConfig>& configs, const TrafficDefinition& definition,
                                      double target);

/// The table of all experiments in Markdown: what plans say at each source of ranks,
/// their mean over the ImageNet runs, and the rank fraction that would give the published one.
std::string paper_traffic_report(const Adjustments& adjustments, const RankChoice& choice);
/// Whether a text is such a report.
bool is_paper_traffic_report(const std::string& text);

}  // namespace ab
