#pragma once
// SPDX-License-Identifier: MIT
//
// A run before it is trained: the training loop itself (apps/train/train_loop.h), on a device of shapes (engine/device/shapes)
// and over a world of one rank (engine/comm/rehearsal_comm.h). A step of each kind is taken once for each form of the model
// and counted as often as it comes; transitions, the first validation of a kind and the end are gone through as they come.
// Ranks of one role whose groups lie alike on nodes are rehearsed once.

#include <map>
#include <string>
#include <vector>

#include "apps/settings/train_config.h"
#include "apps/train/summary.h"
#include "data/datasets.h"
#include "engine/comm/rehearsal_comm.h"
#include "engine/sync/unknowns.h"

namespace ab {

/// Memory of a rank by owner, in bytes of whole blocks.
struct MemoryUse {
  std::int64_t weights = 0;      ///< parameters, as they are in this phase
  std::int64_t gradients = 0;    ///< of the trained ones
  std::int64_t optimizer = 0;    ///< moments, those that sleep included
  std::int64_t buffers = 0;      ///< running statistics
  std::int64_t average = 0;      ///< the dense model of averaged weights, its running statistics included
  std::int64_t method = 0;       ///< what the method keeps beside: buckets, residuals, the rest of a cut; and batches
  std::int64_t activations = 0;  ///< what a step needs beyond those at its peak
  std::int64_t total() const { return weights + gradients + optimizer + buffers + average + method + activations; }
  bool operator==(const MemoryUse&) const = default;
};

/// Parts of a run that are alike: what each of them does.
struct RehearsedPart {
  std::string phase{};             ///< of the updates; empty: what comes before the first, or at the end
  std::int64_t micro_batches = 0;  ///< of the update; 0: it is none
  std::int64_t image_side = 0;     ///< of the update
  std::int64_t times = 0;
  Ledger ledger;
  std::vector<CommEvent> events{};
  std::int64_t flops_before = 0, flops = 0;  ///< of the thread when it began, and of the part
  MemoryUse memory{};
};

/// A run as one rank goes through it.
struct RehearsedRank {
  int rank = 0;
  Summary summary{};  ///< of traffic, what this rank sends
  Ledger ledger;
  std::vector<RehearsedPart> parts{};
  std::vector<std::pair<std::size_t, std::int64_t>> order{};  ///< of parts, and how often in a row
  std::int64_t peak_bytes = 0;                                ///< the most that was held at a time
  std::vector<LayerRank> cut_r{};                             ///< of every weight that the last cut was about
  std::vector<Partition> partitions{};
  std::vector<std::string> roles{};                   ///< by rank
  std::map<std::string, std::int64_t> times() const;  ///< how often each phase that is no step takes place
};

/// The shapes that stand for the device of `config`.
Device shapes_for(const TrainConfig& config);

/// Of every group of a split, its ranks.
std::map<int, std::vector<int>> groups_of(const Partition& partition);

struct RehearsedClass {
  int count = 0;
  std::string role{};
  RehearsedRank rank;  ///< of the first of them
};

struct RehearsedRun {
  std::vector<RehearsedClass> classes;
  std::vector<int> class_of_rank;
};

/// `config` has been checked (check_run()).
RehearsedRank rehearse_rank(const TrainConfig& config, const DataShape& data, int rank, int world_size,
                            const Unknowns& unknowns);
/// All ranks. Throw Error where training would.
RehearsedRun rehearse(const TrainConfig& config, const DataShape& data, int world_size, const Unknowns& unknowns);
/// The summary of the run, with the traffic of all ranks.
Summary summary_of(const RehearsedRun& run);

}  // namespace ab
