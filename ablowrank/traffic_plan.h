#pragma once
// SPDX-License-Identifier: MIT
//
// The traffic of a run without the run: its schedule goes through the same Ledger with the same collectives
// that DenseStrategy and AbStrategy would call, each with the number of times it happens. Every byte figure
// equals what training counts. The work depends on the model and on the kinds of groups, not on steps or
// ranks: ranks whose groups have the same size, factor and share of links between nodes send alike and are
// counted once.
//
//   setup        the model from rank 0
//   every step   the gradient buckets, over the world or, in a low-rank phase, over the group; before them what
//                its micro-batches exchange
//   split        the ranks r (an all-reduce), the factors (a broadcast from each rank that decomposed some)
//   sync         one weighted sum (join.h), a replica check
//   evaluation   buffers averaged, or in a low-rank phase the weighted sum of a sync
//   at the end   the same as a sync and, for FinalModel::factors, a split; at full rank the buffers
// What does not belong to a method (sums of a validation, statistics of batch norm) the caller adds as
// ExtraCollectives.

#include <optional>
#include <string>

#include "ablowrank/groups.h"
#include "ablowrank/options.h"
#include "ablowrank/timetable.h"
#include "engine/comm/ledger.h"
#include "layers/layer.h"

namespace ab {

/// A collective beside those of the method.
struct ExtraCollective {
  enum class Over {
    world,
    gradients,  ///< the ranks that average gradients in this phase: the group while factors train, else the
                ///< world
  };
  Collective what = Collective::all_reduce;
  std::int64_t bytes = 0;  ///< payload
  std::int64_t times = 1;  ///< each time it takes place
  Over over = Over::world;
  int least_ranks = 1;   ///< smaller groups do without it
  std::string label{};   ///< of the communicator; empty: "world" or "group"
  std::string phase{};   ///< in the ledger; empty: the one that it takes place in
};

struct PlannedRun {
  int world_size = 1, ranks_per_node = 0;
  std::int64_t total_steps = 0, steps_per_epoch = 0, eval_every = 1;
  std::optional<AbOptions> ab{};          ///< nothing: dense data-parallel
  std::vector<std::int64_t> cut_ranks{};  ///< r of every eligible weight (split.h) after a cut
  std::int64_t bucket_bytes = std::int64_t{4} << 20;
  std::int64_t gradient_element_bytes = 4;  ///< on the wire
  int moments_per_parameter = 1;            ///< Optimizer::moments_per_parameter()
  bool averages_weights = false;            ///< layers/weight_average.h
  std::int64_t micro_batches = 1;           ///< of a step
  std::int64_t last_micro_batches = 1;      ///< of the last step in an epoch
  std::vector<ExtraCollective> at_setup{}, every_step{}, every_micro_batch{}, every_evaluation{};
  std::vector<ExtraCollective> every_evaluation_but_last{};
};

/// The steps of a class of ranks that exchange the same gradients over the same ring.
struct PlannedSteps {
  std::string phase;
  std::int64_t steps = 0;
  int ranks = 1, crossing_links = 0;       ///< of the ring (ledger.h)
  std::vector<std::int64_t> bucket_bytes;  ///< in the order in which they leave
};

/// Ranks that send alike.
struct RankClass {
  int count = 0;
  int first = 0;                   ///< the lowest of them
  std::optional<RankGroup> group;  ///< of the first one; nothing: dense training
  Ledger ledger;                   ///< what each of them counts
  std::vector<PlannedSteps> steps{};
};

struct TrafficPlan {
  Timetable timetable;
  std::vector<RankClass> classes;
  std::vector<int> class_of_rank;
  std::int64_t counted = 0;  ///< calls of Ledger::count(): the work that the plan took
};

/// `model` is dense, with its parameters' final roles; only shapes are looked at. Throws Error(config) when
/// the settings do not fit each other, the world or the model.
TrafficPlan plan_traffic(Layer& model, const PlannedRun& run);

}  // namespace ab
