#pragma once
// SPDX-License-Identifier: MIT
//
// How much less a run sends than dense data-parallel training of the same configuration with float32
// gradients. The paper does not say in its abstract what its reduction of network traffic counts, so here is
// every reasonable way to count.

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "apps/paper/experiments.h"
#include "apps/plan/plan.h"
#include "apps/train/summary.h"

namespace ab {

/// Shares from 0 to 1, means over ranks; NaN where unknown. `inter_node`: of the bytes that cross nodes
/// alone.
struct TrafficFigures {
  double low_rank_steps = 0;           ///< share of all steps
  double compression = 1;              ///< parameters of the dense model over those of the one that the run leaves
  double run = 0, run_inter_node = 0;  ///< saved over the whole run
  double training = 0, training_inter_node = 0;  ///< the same without what validations exchange
  double low_rank = 0,
         low_rank_inter_node = 0;  ///< saved in a low-rank step, against a step of dense training
};

/// From what two runs counted; bytes across nodes are known for the whole run alone.
TrafficFigures traffic_figures(const Summary& run, const Summary& dense);
TrafficFigures traffic_figures(const RunPlan& run, const RunPlan& dense);

struct TrafficDefinition {
  const char* name;
  const char* heading;  ///< of a column
  double TrafficFigures::*saved;
};
inline constexpr std::array<TrafficDefinition, 6> kTrafficDefinitions{{
    {"whole run, all bytes", "run", &TrafficFigures::run},
    {"whole run, between nodes", "run, nodes", &TrafficFigures::run_inter_node},
    {"without validations, all bytes", "training", &TrafficFigures::training},
    {"without validations, between nodes", "training, nodes", &TrafficFigures::training_inter_node},
    {"low-rank steps alone, all bytes", "low-rank", &TrafficFigures::low_rank},
    {"low-rank steps alone, between nodes", "low-rank, nodes", &TrafficFigures::low_rank_inter_node},
}};

// The traffic of experiments, planned: which ranks r a plan assumes, and the table of all experiments beside
// the paper's published mean.

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

/// All experiments in Markdown.
struct PaperTraffic {
  std::string result;  ///< three sentences
  std::string report;  ///< and tables: what plans say at each source of ranks, their mean over the ImageNet runs, and
                       ///< the rank fraction that would give the published one
};
PaperTraffic plan_paper_traffic(const Adjustments& adjustments, const RankChoice& choice);

}  // namespace ab
