#pragma once
// SPDX-License-Identifier: MIT
//
// The traffic of a run without the run. Ranks that send alike are counted once, so the work depends on the model and
// on the kinds of ranks, not on their number. Who plans a method makes one TrafficCounter for each kind and tells it
// what such a rank does; what is of no method, the counter knows:
//
//   setup        the model from rank 0
//   every step   the gradient buckets, and what its micro-batches exchange
//   evaluation   the sums of a validation

#include <optional>

#include "engine/plan/model_sizes.h"
#include "engine/plan/planned_run.h"
#include "engine/sync/node_layout.h"

namespace ab {

/// A bucket that leaves during backward, once its last gradient is there.
struct PlannedBucket {
  std::int64_t bytes = 0;      ///< payload
  std::int64_t gradients = 1;  ///< how many tensors fill it
};

struct PlannedCollective {
  Collective what = Collective::all_reduce;
  std::int64_t bytes = 0;  ///< payload
};

/// The steps of a class of ranks that exchange the same gradients over the same group.
struct PlannedSteps {
  std::string phase;
  std::int64_t steps = 0;
  Layout group{};
  std::vector<PlannedBucket> buckets{};  ///< in the order in which they leave
  /// Over the same group, after backward: a step waits for these one by one, and only then for its buckets.
  std::vector<PlannedCollective> after_backward{};
};

/// All-reduces that travel while later steps are computed.
struct PlannedFlights {
  std::string phase;
  std::int64_t times = 0;
  Layout group{};
  std::int64_t bytes = 0;    ///< payload of one
  std::int64_t batches = 0;  ///< micro-batches that are computed meanwhile
};

/// Ranks that send alike.
struct RankClass {
  int count = 0;
  int first = 0;       ///< the lowest of them
  std::string kind{};  ///< heading of their bytes in a report; empty: none of their own
  Ledger ledger;       ///< what each of them counts
  std::vector<PlannedSteps> steps{};
  std::vector<PlannedFlights> flights{};
  std::map<std::string, int> at_once{};  ///< RingMembers::at_once, by label; 1 where there is none

  /// These ranks do what `then` says, afterwards.
  void go_on_with(const RankClass& then);
};

struct TrafficPlan {
  std::vector<RankClass> classes;
  std::vector<int> class_of_rank;
  std::int64_t counted = 0;  ///< calls of Ledger::count(): the work that the plan took
};

/// A plan in which all ranks send alike, and nothing yet.
TrafficPlan plan_for_equal_ranks(const PlannedRun& run);
/// One in which ranks of like nodes do.
TrafficPlan plan_for_nodes(const PlannedRun& run, const NodeLayout& layout);

/// Ranks, by their numbers in the world, and the label of their communicator.
struct RingMembers {
  std::vector<int> ranks;
  const char* label = "world";
  /// So many such groups send through the cards of the same nodes at the same time; not for gradients in buckets, nor
  /// for what is waited for later.
  int at_once = 1;
};

/// The buckets that gradients of these sizes (elements, in forward order) fill.
std::vector<PlannedBucket> planned_buckets(const std::vector<std::int64_t>& elements, const PlannedRun& run);

/// Counts what the ranks of one class do.
class TrafficCounter {
 public:
  /// `run`, `plan` and `ranks`, which is of the plan, must outlive this.
  TrafficCounter(const PlannedRun& run, TrafficPlan& plan, RankClass& ranks);

  /// From here on what steps exchange is counted there, or in the phase of the part that the run is.
  void set_phase(const std::string& phase) {
    ranks_.ledger.set_phase(run_.part.phase.empty() ? phase : run_.part.phase);
  }
  /// A collective over the world; an empty one does not take place.
  void over_world(Collective what, std::int64_t bytes, std::int64_t times);
  /// Over the world, for flat buffers of several types (engine/sync/flat.h).
  void over_world(Collective what, const std::map<DType, std::int64_t>& elements, std::int64_t times);
  /// Over some ranks.
  void over(const RingMembers& members, Collective what, std::int64_t bytes, std::int64_t times);
  /// All-reduces that are waited for `steps` steps after they have started.
  void in_flight(const RingMembers& members, std::int64_t bytes, std::int64_t times, std::int64_t steps);
  /// All-reduces over the world by an algorithm of their own (Ledger::use_all_reduce).
  void all_reduce_by(AllReduce algorithm, std::int64_t bytes, std::int64_t times);

  /// The model from rank 0, and what a run exchanges before its first step, if that is among its steps.
  void setup(const ModelSizes& sizes);
  /// Steps whose `gradients` (elements of each tensor, in forward order) are averaged over `members`.
  void steps(const std::string& phase, const StepCount& done, const std::vector<std::int64_t>& gradients,
             const RingMembers& members);
  /// The same with the buckets themselves, and what such steps wait for before them: of that, an empty collective does
  /// not take place.
  void steps_of_buckets(const std::string& phase, const StepCount& done, std::vector<PlannedBucket> buckets,
                        const RingMembers& members, std::vector<PlannedCollective> after_backward = {});
  /// What every validation of the run exchanges, whatever the method.
  void evaluations();

  const RingMembers& world() const { return world_; }

 private:
  void count(Collective what, const std::string& label, const std::vector<int>& members, std::int64_t bytes,
             std::int64_t times);
  void count_extras(const std::vector<ExtraCollective>& extras, const RingMembers& gradients, std::int64_t times);

  const PlannedRun& run_;
  TrafficPlan& plan_;
  RankClass& ranks_;
  RingMembers world_;
};

}  // namespace ab
