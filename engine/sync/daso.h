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
// and the sender gives the result to its node. daso_schedule.h says when. A node counts in the mean by its ranks.
// In 16 bits, those of blocking epochs exchange changes since the last one (flat.h); all others are float32.
// Buffers are averaged in blocking exchanges; moments stay in their node. Gradients are clipped, and with float16
// updates skipped, by each node for itself.

#include <memory>
#include <optional>

#include "engine/sync/daso_schedule.h"
#include "engine/sync/flat.h"
#include "engine/sync/gradient_buckets.h"
#include "engine/sync/node_layout.h"
#include "engine/sync/replica_strategy.h"

namespace ab {

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
  void set_gradient_exchange(bool on) override;
  bool exchanges_in_backward() const override { return gradients_ && gradients_->leave_in_backward(); }
  void finish_grads(TrainState& state) override;
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
  bool sends_in(std::int64_t q) const;
  int sender_in_node(std::int64_t q) const;

  DasoOptions options_;
  DasoCalendar calendar_;
  DasoController controller_;
  NodeLayout layout_;
  std::unique_ptr<Comm> node_;
  std::vector<std::unique_ptr<Comm>> across_;  // by q; empty where this rank does not send
  std::optional<GradientBuckets> gradients_;   // of the node; none where every rank is alone
  ParameterMean mean_;
  std::int64_t done_ = 0;  // updates
  std::int64_t q_ = 0;     // the next exchange of the epoch
  bool agree_ = true;
  mutable std::optional<Flight> flight_;
};

}  // namespace ab
