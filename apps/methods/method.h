#pragma once
// SPDX-License-Identifier: MIT
//
// A training method as one unit: its settings, what it refuses and its strategy. A new method is
//   engine/sync/NAME.h         options and strategy (sync_strategy.h)
//   apps/methods/NAME.cpp      this record
//   and one row in methods.cpp, and one in tests/method_laws.h
// and engine/kernels/NAME.{h,cpp} for kernels that are not there yet: that folder alone is compiled for GPUs too.
// Flags, TOML table, --help and abtrain plan follow from the record; nothing else knows the method by name.

#include <memory>
#include <string>
#include <vector>

#include "apps/methods/told.h"
#include "apps/settings/section.h"
#include "engine/comm/comm.h"
#include "engine/sync/gradient_buckets.h"
#include "engine/sync/replica_strategy.h"
#include "layers/layer.h"

namespace ab {

struct Method {
  const char* name;  ///< --method, the TOML table of its settings and the prefix of their flags
  /// Adds its settings (section.h).
  void (*declare)(std::vector<Setting>& settings) = nullptr;
  /// Published settings that its own can start from (--preset).
  std::vector<Preset> presets{};
  /// Changes defaults, before the user's values (choose_method()): what it trains best with; and what it cannot train with
  /// may be refused then only if the user asked for it, so that --method NAME alone always trains.
  void (*bring_defaults)(TrainConfig& config) = nullptr;
  /// The other methods whose settings the run takes too.
  std::vector<std::string> (*uses)(const TrainConfig& config) = nullptr;
  /// Throws Error(config) when settings of the run exclude each other, or do not fit the model (dense, of which only
  /// names and shapes count) or the number of ranks. Asked before anything is loaded or written.
  void (*check)(const TrainConfig& config, Layer& model, int world_size) = nullptr;
  /// Throws Error(config) when the run is too short for its settings. Asked before anything is written.
  void (*check_length)(const TrainConfig& config, const LrSchedule& schedule) = nullptr;
  /// Collective. Parameters get their final roles here. `config`, `model` and `world` outlive the strategy.
  std::unique_ptr<SyncStrategy> (*make)(const TrainConfig& config, Layer& model, Comm& world,
                                        const LrSchedule& schedule) = nullptr;
  /// In place of make(): a method that averages gradients or parameters and does nothing else to the model, so that others
  /// can train with it for a while, from whatever step.
  std::unique_ptr<SyncStrategy> (*average)(const TrainConfig& config, Replica replica, Comm& world,
                                           const LrSchedule& schedule) = nullptr;
  /// The runs that a run may become where only training could tell, for its plan; null: there is one.
  MayBecome (*told)(const TrainConfig& config, Layer& model, const RunFacts& facts) = nullptr;
  bool dense_start = false;  ///< --dense-steps concerns it
  bool has_factors = false;  ///< --execution and --rank-multiple concern it
  bool drifts = false;       ///< replicas that it trains differ between its averages, and optimizer state always does
  bool has_ranks = false;    ///< its plan can be given the ranks r of its factors (AssumedR)
  bool decides = false;      ///< its plan can follow the decisions of a trained run (RunFacts::decisions)
};

/// All methods; the first is kBaseline.
const std::vector<Method>& methods();
/// The method of that name. Throws Error(config) that lists them.
const Method& find_method(const std::string& name);

/// Steps from one validation to the next.
std::int64_t evaluation_period(const TrainConfig& config, const LrSchedule& schedule);

/// The strategy of a run, by whichever of make() and average() the method has.
std::unique_ptr<SyncStrategy> make_strategy(const Method& method, const TrainConfig& config, Layer& model, Comm& world,
                                            const LrSchedule& schedule);

/// What config.rank_multiple means: on a GPU rows of factors in 16 bits that begin at every 16 bytes, on a CPU nothing.
std::int64_t rank_multiple(const TrainConfig& config);
/// How the gradients of a run travel. On GPUs by larger buckets: starting a collective takes longer there, and sending less.
GradientWire gradient_wire(const TrainConfig& config);
/// `model` for methods that replicate it; `synchronised`: batch norms take their statistics over all ranks.
Replica replica_of(Layer& model, bool synchronised);
/// Ranks of a node as --ranks-per-node says, but never more than there are ranks; where that says nothing, every rank is a
/// node.
NodeLayout node_layout(const TrainConfig& config, int world_size);

}  // namespace ab
