#pragma once
// SPDX-License-Identifier: MIT
//
// Traffic, memory and time of a configuration before it is trained: a rehearsal of the run (rehearsal.h), and the
// figures as summary.json would have them. No data set is read; the sizes of known ones are facts.

#include <optional>

#include "apps/plan/replay.h"
#include "apps/settings/train_config.h"
#include "apps/train/summary.h"
#include "data/datasets.h"

namespace ab {

/// --step-ms auto, which settle_step() makes a number.
inline constexpr double kAutoStep = -1;

struct PlanOptions {
  int world_size = 0;            ///< 0: the configuration's ranks
  std::int64_t classes = 0;      ///< 0: as the data set has
  double ratio = 0;              ///< > 0: r = ratio · n in place of what the method would choose
  double unknown_ratio = 0;      ///< the same where it can choose in training alone; 0: refused
  std::string factors_from{};    ///< run folder or summary.json of a run whose ranks r are taken; empty: none
  std::string decisions_from{};  ///< run folder of a run whose method's decisions are taken; empty: none
  double step_milliseconds = 0;  ///< computing of one step; 0: from the run of factors_from, if given
  bool beside_dense = true;      ///< also plan dense training, which takes as long once more
};

/// Traffic of a phase: means over ranks, in bytes.
struct PhaseTraffic {
  std::int64_t times = 0;  ///< steps, validations, or what else the phase consists of
  double payload = 0, intra_node = 0, inter_node = 0;
  std::map<std::string, double>
      wire_by_kind{};  ///< of ranks of each role (SyncStrategy::role()), where there are several
  double wire() const { return intra_node + inter_node; }
};

/// The same run in dense data-parallel training.
struct DenseRun {
  double wire_bytes = 0, inter_node_bytes = 0;  ///< per rank
  PhaseTime time;                               ///< of the whole run
};

/// Least traffic of a run in which training decides how much is sent: means over ranks, in bytes.
struct LeastTraffic {
  double wire = 0, inter_node = 0;
};

/// Memory of a rank in the step of a phase that takes most.
struct PhaseMemory {
  std::string when;  ///< "full", "low-rank, A", …
  MemoryUse use;
};

/// Where the training images of an epoch come from, on all nodes together, once each node keeps what fits; and the bytes of
/// what training sees of them that cross nodes.
struct ImagePlan {
  double from_memory = 0, from_nodes = 0, from_disk = 0, from_files = 0;
  double bytes_from_nodes = 0;
  double bytes_of_node = 0;   ///< of memory, in which a node keeps all that it may keep
  double files_when_off = 0;  ///< images that come from files in their place, with CacheShare::off
  double file_bytes = 0;      ///< of one
  int nodes = 1;
  /// Bytes between nodes in an epoch that dense training would send more, in the same type.
  double gradients_saved = 0;
};
/// With the cache that `config` asks for, of images like those of ILSVRC: 500×375 pixels, files of 110 kB.
ImagePlan plan_images(const TrainConfig& config, std::int64_t images, int nodes);

struct RunPlan {
  Summary summary;               ///< as the run would write it; NaN where only training can tell
  std::vector<LayerRank> cut_r;  ///< of every weight that is cut on the way
  int ranks_per_node = 0;
  std::int64_t steps_per_epoch = 0, evaluations = 0, batch_size = 0;
  std::vector<std::string> phases;  ///< in the order of a run, those that send anything
  std::map<std::string, PhaseTraffic> traffic;
  std::optional<LeastTraffic> least;       ///< none: the traffic is certain, and otherwise it is the most
  DenseRun dense_float32, dense_bfloat16;  ///< by the type of gradients on the wire
  std::vector<PhaseMemory> memory;
  AllReduce all_reduce = AllReduce::direct;
  LinkModel links;
  double step_seconds = 0;          ///< of an update of --accumulate micro-batches; 0: unknown
  double whole_updates = 0;         ///< of the run, where fewer micro-batches are a part of one
  double decoded_per_second = 0;    ///< images of a rank that its cores decode while it computes; 0: none, or unknown
  std::optional<ImagePlan> images;  ///< with a cache
  std::map<std::string, PhaseTime> time;

  /// Of the whole run: what communication delays it, and with it all that it takes.
  double exposed_seconds() const;
  double run_seconds() const;
};

/// The data set as training would cut it. `classes` 0: as many as it has.
DataShape data_shape(const TrainConfig& config, std::int64_t classes = 0);

/// Memory of one rank, in bytes.
struct NeededMemory {
  std::int64_t held = 0;  ///< in the phase that holds most, activations left out
  std::int64_t peak = 0;  ///< of the whole run
};
/// Of the run that plan_run() takes; throws Error(config) where that does.
NeededMemory needed_memory(const TrainConfig& config, const PlanOptions& options);

/// The run that plan_run() replays: of all that training may make of it, the one that sends most.
RehearsedRun rehearse_most(const TrainConfig& config, const PlanOptions& options);

/// In place of kAutoStep the time of a step of the run that options name, or else of the operations of dense training on an
/// H200. Returns a sentence about it; empty where nothing was to be settled. Throws Error(config) for another processor.
std::string settle_step(const TrainConfig& config, PlanOptions& options);

/// Throws Error(config) when the configuration does not fit together, or leaves ranks r open that only
/// training decides.
RunPlan plan_run(const TrainConfig& config, const PlanOptions& options);

}  // namespace ab
