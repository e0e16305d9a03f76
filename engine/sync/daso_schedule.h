#pragma once
// SPDX-License-Identifier: MIT
//
// When DASO (daso.h) exchanges what. Epochs at the start and at the end of a run are blocking: nodes average after every
// step. In those between, the cycling ones, a node sends every B steps and merges what it has received S steps later;
// only the last step of an epoch is blocking. B and S change at the end of an epoch, when the mean loss has stopped
// falling: they become smaller, so that nodes are kept together more closely, and after B = 1 they start again at the top.
// With b the number of a step within its epoch, from 0, and `last` the one that ends it:
//   send    b mod B = 0, unless the merge would not come before `last`
//   merge   S steps after a send; if a send falls on the same step, that is taken first
//   after more than `patience` epochs in a row whose loss is not below (1 − stability) · best:
//     B > 1:  B ← ⌊B/2⌋, S ← max(1, S − 1)        B = 1:  B ← max_skips, S ← max(1, ⌊max_skips/4⌋)

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "engine/io/state_dict.h"
#include "engine/optim/schedule.h"

namespace ab {

struct DasoOptions {
  std::int64_t blocking_epochs = 1, cooldown_epochs = 1;  ///< blocking ones
  std::int64_t start_skips = 4, start_wait = 1;           ///< B and S of the first cycling epoch
  std::int64_t max_skips = 8;
  double stability = 0.05;  ///< 1: no loss counts as falling, so that the whole run is known before it is trained
  std::int64_t patience = 2;
  int node_size = 1;  ///< ranks of a node

  bool operator==(const DasoOptions&) const = default;
};

/// B and S of an epoch.
struct DasoPace {
  std::int64_t skips = 4, wait = 1;
  auto operator<=>(const DasoPace&) const = default;
};

/// Decides on the pace of the next epoch.
class DasoController {
 public:
  explicit DasoController(const DasoOptions& options)
      : options_(options), pace_{options.start_skips, options.start_wait} {}

  const DasoPace& pace() const { return pace_; }
  /// In place of epoch_end(), where the pace is known.
  void set_pace(const DasoPace& pace) { pace_ = pace; }
  /// The end of an epoch before a cycling one. The first loss counts as falling.
  void epoch_end(double loss);

  void save(StateDict& state) const;
  void load(const StateDict& saved);

 private:
  DasoOptions options_;
  DasoPace pace_;
  double best_ = std::numeric_limits<double>::max();
  std::int64_t bad_epochs_ = 0;
};

/// The pace after a loss that has stopped falling.
DasoPace next_pace(const DasoPace& pace, const DasoOptions& options);

/// Where the steps of a run are. `step`: updates done before this one.
class DasoCalendar {
 public:
  DasoCalendar(const DasoOptions& options, const LrSchedule& schedule)
      : warmup_(options.blocking_epochs),
        cooldown_(options.cooldown_epochs),
        per_epoch_(schedule.steps_per_epoch),
        total_(schedule.total_steps) {}

  std::int64_t epochs() const { return (total_ + per_epoch_ - 1) / per_epoch_; }
  std::int64_t epoch_of(std::int64_t step) const { return step / per_epoch_; }
  /// b
  std::int64_t step_in_epoch(std::int64_t step) const { return step % per_epoch_; }
  /// `last` of an epoch, in steps of the epoch.
  std::int64_t last_of(std::int64_t epoch) const { return std::min(per_epoch_, total_ - epoch * per_epoch_) - 1; }
  bool blocking(std::int64_t epoch) const { return epoch < warmup_ || epoch >= epochs() - cooldown_; }
  /// Whether the loss of the epoch is asked for: it decides how the next one goes.
  bool decides_after(std::int64_t epoch) const { return epoch + 1 < epochs() && !blocking(epoch + 1); }
  /// Sends of a cycling epoch.
  std::int64_t sends(std::int64_t epoch, const DasoPace& pace) const {
    const std::int64_t last_start = last_of(epoch) - pace.wait - 1;
    return last_start < 0 ? 0 : last_start / pace.skips + 1;
  }

 private:
  std::int64_t warmup_, cooldown_, per_epoch_, total_;
};

/// Among all that losses can bring about, those of the most sends, or of the fewest.
std::vector<DasoPace> extreme_paces(const DasoOptions& options, const DasoCalendar& calendar, bool most);

}  // namespace ab
