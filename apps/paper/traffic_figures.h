#pragma once
// SPDX-License-Identifier: MIT
//
// How much less a run sends than dense data-parallel training of the same configuration with float32
// gradients. The paper does not say in its abstract what its reduction of network traffic counts, so here is
// every reasonable way to count.

#include <array>

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

}  // namespace ab
