#pragma once
// SPDX-License-Identifier: MIT
//
// DASO, distributed asynchronous and selective optimization (Coquelin et al. 2022, arXiv 2104.05588). Ranks of a node
// average their gradients in every step and stay equal. Between nodes only parameters travel, and only one rank of each
// node sends them: the senders of one exchange, rank q of every node, form a group, and q moves on from exchange to
// exchange (in a node of fewer ranks, q modulo their number). With m nodes, x their parameters, and x̄ the mean over them
// of what was sent,
//   blocking   x ← x̄                               after every step of the first and last epochs, and after every epoch
//   merge      x ← (2S·x + m·x̄) / (2S + m)         S steps after the send, while training goes on
// and the sender gives the result to its node. A node counts in the mean by its ranks.
// In 16 bits, those of blocking epochs exchange changes since the last one (flat.h); all others are float32.
// Buffers are averaged in blocking exchanges; moments stay in their node. Gradients are clipped, and with float16
// updates skipped, by each node for itself.
//
// Epochs at the start and at the end of a run are blocking: nodes average after every
// step. In those between, the cycling ones, a node sends every B steps and merges what it has received S steps later;
// only the last step of an epoch is blocking. B and S change at the end of an epoch, when the mean loss has stopped
// falling: they become smaller, so that nodes are kept together more closely, and after B = 1 they start again at the top.
// With b the number of a step within its epoch, from 0, and `last` the one that ends it:
//   send    b mod B = 0, unless the merge would not come before `last`
//   merge   S steps after a send; if a send falls on the same step, that is taken first
//   after more than `patience` epochs in a row whose loss is not below (1 − stability) · best:
//     B > 1:  B ← ⌊B/2⌋, S ← max(1, S − 1)        B = 1:  B ← max_skips, S ← max(1, ⌊max_skips/4⌋)

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>

#include "engine/optim/schedule.h"
#include "engine/sync/flat.h"
#include "engine/sync/node_layout.h"
#include "engine/sync/replica_strategy.h"

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

class DasoStrategy final : public ReplicaStrategy {
 public:
  static constexpr const char *kBlocking = "blocking", *kCycling = "cycling";  ///< phases of the updates
  static constexpr const char* kAverage = "average";                           ///< phase of blocking exchanges
  static constexpr const char* kMerge = "merge";                               ///< phase of the others
  static constexpr const char* kLabel = "across";  ///< of the communicators of senders in the ledger

  /// `sync_bn`: who shares statistics of the replica's batch norms, all ranks or those of a node.
  DasoStrategy(Replica replica, Comm& world, const DasoOptions& options, const LrSchedule& schedule,
               SyncBn sync_bn = SyncBn::world, const GradientWire& wire = {});

  std::string phase() const override;
  void after_step(TrainState& state) override { advance(state, /*passes=*/false); }
  std::int64_t step_kind(std::int64_t step) const override;
  void pass(TrainState& state) override { advance(state, /*passes=*/true); }
  /// Ranks of a node send in turn.
  std::string role(int rank) const override { return fmt::format(".{}", rank % layout_.node_size); }
  bool follows_epochs() const override { return calendar_.decides_after(calendar_.epoch_of(done_ - 1)); }
  void on_epoch_end(TrainState& state, double mean_loss) override;
  std::map<std::string, std::int64_t> decision() const override;
  void begin_evaluation(TrainState& state) override;
  void finish(TrainState& state) override;
  bool replicas_agree() const override { return agree_; }
  /// Collective: what is in flight arrives first, which changes no result.
  void save(StateDict& state) const override;
  void load(const StateDict& saved, TrainState& state) override;

 private:
  /// Parameters that were sent and are not yet merged.
  struct Flight {
    std::int64_t q = 0, due = 0, wait = 1;  // the exchange, the step in the epoch that merges it, S
    Tensor sent{};                          // of senders: the mean, once it has arrived
    Request request{};
  };

  /// The exchange between nodes after an update, done or only noted.
  void advance(TrainState& state, bool passes);
  Flight send(bool passes);
  bool sends_at(std::int64_t b, std::int64_t last) const;
  void merge(Flight flight);
  void average(bool may_take_16_bits);
  /// The weight of this rank's node in a mean over nodes.
  double weight() const { return static_cast<double>(node_->size()) * layout_.nodes() / layout_.ranks; }
  /// Every rank of the node takes what its sender has in `flat`, which the others need not have.
  void share_in_node(Tensor flat, std::int64_t q, const std::vector<Tensor>& tensors);
  bool sends_in(std::int64_t q, int rank) const;
  bool sends_in(std::int64_t q) const { return sends_in(q, world().rank()); }

  DasoOptions options_;
  DasoCalendar calendar_;
  DasoController controller_;
  NodeLayout layout_;
  std::vector<std::unique_ptr<Comm>> across_;  // by q; empty where this rank does not send
  ParameterMean mean_;
  std::int64_t done_ = 0;  // updates
  std::int64_t q_ = 0;     // the next exchange of the epoch
  bool agree_ = true;
  mutable std::optional<Flight> flight_;
};

}  // namespace ab
