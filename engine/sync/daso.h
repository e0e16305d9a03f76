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

#include "engine/kernels/elementwise.h"
#include "engine/optim/schedule.h"
#include "engine/sync/flat.h"
#include "engine/sync/replica_strategy.h"
#include "engine/sync/unknowns.h"

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

/// The pace after a loss that has stopped falling.
DasoPace next_pace(const DasoPace& pace, const DasoOptions& options);

/// Decides on the pace of the next epoch.
class DasoController {
 public:
  explicit DasoController(const DasoOptions& options)
      : options_(options), pace_{options.start_skips, options.start_wait} {}

  const DasoPace& pace() const { return pace_; }
  /// In place of epoch_end(), where the pace is known.
  void set_pace(const DasoPace& pace) { pace_ = pace; }

  /// The end of an epoch before a cycling one. The first loss counts as falling.
  void epoch_end(double loss) {
    const bool is_first = best_ == std::numeric_limits<double>::max();
    if (is_first || loss < best_ * (1 - options_.stability)) {
      best_ = loss;
      bad_epochs_ = 0;
    } else if (++bad_epochs_ > options_.patience) {
      bad_epochs_ = 0;
      pace_ = next_pace(pace_, options_);
    }
  }

  void save(StateDict& state) const {
    state.put("daso.skips", pace_.skips);
    state.put("daso.wait", pace_.wait);
    state.put("daso.best_loss", best_);
    state.put("daso.bad_epochs", bad_epochs_);
  }
  void load(const StateDict& saved) {
    pace_ = {saved.integer("daso.skips"), saved.integer("daso.wait")};
    best_ = saved.number("daso.best_loss");
    bad_epochs_ = saved.integer("daso.bad_epochs");
  }

 private:
  DasoOptions options_;
  DasoPace pace_;
  double best_ = std::numeric_limits<double>::max();
  std::int64_t bad_epochs_ = 0;
};

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
  DasoStrategy(Replica model, Comm& world, const DasoOptions& options, const LrSchedule& schedule,
               SyncBn sync_bn = SyncBn::world, const GradientWire& wire = {})
      : ReplicaStrategy(std::move(model), world, sync_bn,
                        [node = std::max(1, options.node_size)](int rank) { return rank / node; }),
        options_(options),
        calendar_(options, schedule),
        controller_(options),
        layout_{world.size(), options.node_size},
        mean_(this->replica().values(), wire.dtype) {
    AB_CHECK(options_.start_skips >= 1 && options_.max_skips >= 1, "DASO sends every B >= 1 steps");
    AB_CHECK(options_.start_wait >= 1 && options_.start_wait <= options_.start_skips,
             "DASO cannot wait {} steps for what it sends every {}", options_.start_wait, options_.start_skips);
    node_ = split_nodes(world, layout_);
    for (int q = 0; q < layout_.size_of(0); ++q) {
      std::unique_ptr<Comm> comm = world.split([&](int rank) { return sends_in(q, rank) ? 0 : 1 + rank; }, kLabel);
      across_.push_back(sends_in(q) ? std::move(comm) : nullptr);
    }
    if (options_.node_size > 1)
      buckets_ = std::make_unique<GradientBuckets>(replica().params, *node_, ReduceOp::mean, wire);
  }

  std::string phase() const override {
    const std::int64_t epoch = std::min(calendar_.epoch_of(done_), calendar_.epochs() - 1);
    return calendar_.blocking(epoch) ? kBlocking : kCycling;
  }
  void after_step(TrainState& state) override { advance(state, /*passes=*/false); }

  std::int64_t step_kind(std::int64_t step) const override {
    const std::int64_t epoch = calendar_.epoch_of(step), b = calendar_.step_in_epoch(step);
    const std::int64_t last = calendar_.last_of(epoch);
    const bool mine = sends_in(q_ % layout_.size_of(0));
    if (calendar_.blocking(epoch) || b == last) return 2 * calendar_.blocking(epoch) + mine;
    const bool merges = flight_ && flight_->due == b;
    return 4 + 8 * (sends_at(b, last) ? 1 + mine : 0) + (merges ? 1 + sends_in(flight_->q) : 0);
  }

  void pass(TrainState& state) override { advance(state, /*passes=*/true); }
  /// Ranks of a node send in turn.
  std::string role(int rank) const override { return fmt::format(".{}", rank % layout_.node_size); }
  bool follows_epochs() const override { return calendar_.decides_after(calendar_.epoch_of(done_ - 1)); }
  void on_epoch_end(TrainState& /*state*/, double mean_loss) override {
    const Unknowns* const told = Unknowns::current();
    if (!told || !told->decision) return controller_.epoch_end(mean_loss);
    const auto values = told->decision(calendar_.epoch_of(done_ - 1));
    controller_.set_pace({values.at("skips"), values.at("wait")});
  }
  std::map<std::string, std::int64_t> decision() const override {
    return {{"skips", controller_.pace().skips}, {"wait", controller_.pace().wait}};
  }
  void begin_evaluation(TrainState& /*state*/) override {
    if (agree_) return;
    set_aside();
    all_reduce_flat(world(), replica().tensors(), ReduceOp::mean);
  }
  void finish(TrainState& /*state*/) override {
    if (agree_) return;
    if (flight_) flight_->request.wait();
    flight_.reset();
    all_reduce_flat(world(), replica().tensors(), ReduceOp::mean);
    agree_ = true;
  }
  bool replicas_agree() const override { return agree_; }

  /// Collective: what is in flight arrives first, which changes no result.
  void save(StateDict& state) const override {
    controller_.save(state);
    state.put("daso.q", q_);
    state.put("daso.agree", std::int64_t{agree_});
    if (!flight_) return;
    flight_->request.wait();
    state.put("daso.flight.q", flight_->q);
    state.put("daso.flight.due", flight_->due);
    state.put("daso.flight.wait", flight_->wait);
    if (sends_in(flight_->q)) state.put("daso.flight.arrived", flight_->sent);
  }

  void load(const StateDict& saved, TrainState& state) override {
    controller_.load(saved);
    done_ = state.step;
    q_ = saved.integer("daso.q");
    agree_ = saved.integer("daso.agree") != 0;
    if (agree_) mean_.agree();  // else it is not asked before the end of the epoch, when all agree
    if (!saved.has("daso.flight.q")) return;
    flight_ = Flight{.q = saved.integer("daso.flight.q"),
                     .due = saved.integer("daso.flight.due"),
                     .wait = saved.integer("daso.flight.wait")};
    if (sends_in(flight_->q)) flight_->sent = saved.tensor("daso.flight.arrived").to(mean_.params().front().device());
  }

 private:
  /// Parameters that were sent and are not yet merged.
  struct Flight {
    std::int64_t q = 0, due = 0, wait = 1;  // the exchange, the step in the epoch that merges it, S
    Tensor sent{};                          // of senders: the mean, once it has arrived
    Request request{};
  };

  /// The exchange between nodes after an update, done or only noted.
  void advance(TrainState& state, bool passes) {
    const std::int64_t epoch = calendar_.epoch_of(done_), b = calendar_.step_in_epoch(done_);
    const std::int64_t last = calendar_.last_of(epoch);
    done_ = state.step;
    agree_ = calendar_.blocking(epoch) || b == last;
    if (agree_) {
      if (passes) ++q_;
      else average(calendar_.blocking(epoch));
      if (b == last) q_ = 0;
      return;
    }
    std::optional<Flight> next;
    if (sends_at(b, last)) {
      next = send(passes);
      next->due = b + controller_.pace().wait;
    }
    if (flight_ && flight_->due == b) {
      if (!passes) merge(std::move(*flight_));
      flight_.reset();
    }
    if (next) flight_ = std::move(next);
  }

  Flight send(bool passes) {
    world().ledger().set_phase(kMerge);
    Flight flight{.q = q_++ % layout_.size_of(0), .wait = controller_.pace().wait};
    if (!sends_in(flight.q)) return flight;
    flight.sent = flat_like(mean_.params());
    if (passes) return flight;
    gather_parts(mean_.params(), flight.sent);
    if (weight() != 1) scale_in_place(flight.sent, weight());
    flight.request = across_[static_cast<std::size_t>(flight.q)]->all_reduce_async(flight.sent, ReduceOp::mean);
    return flight;
  }

  bool sends_at(std::int64_t b, std::int64_t last) const {
    const auto [skips, wait] = controller_.pace();
    return b % skips == 0 && b + wait < last;
  }

  void merge(Flight flight) {
    world().ledger().set_phase(kMerge);
    if (sends_in(flight.q)) {
      flight.request.wait();
      const double own = 2.0 * static_cast<double>(flight.wait), all = own + layout_.nodes();
      scale_in_place(flight.sent, layout_.nodes() / all);
      for_each_part(mean_.params(), flight.sent,
                    [&](const Tensor& param, const Tensor& part) { axpy(own / all, param.view(part.shape()), part); });
    }
    share_in_node(flight.sent, flight.q, mean_.params());
  }

  void average(bool may_take_16_bits) {
    world().ledger().set_phase(kAverage);
    const std::int64_t q = q_++ % layout_.size_of(0);
    const std::vector<Tensor> tensors = replica().tensors();
    Tensor flat;
    if (sends_in(q)) {
      Comm& across = *across_[static_cast<std::size_t>(q)];
      flat = flat_like(tensors);
      gather_parts(tensors, flat);
      Tensor in_float32 = flat;
      if (may_take_16_bits && mean_.in_16_bits()) {
        const Tensor params = mean_.over(across, weight());
        flat.slice(0, params.numel()).copy_from(params);
        in_float32 = flat.slice(params.numel(), flat.numel());
      }
      if (in_float32.numel() > 0) {  // not so in 16 bits, in a model without buffers
        if (weight() != 1) scale_in_place(in_float32, weight());
        across.all_reduce(in_float32, ReduceOp::mean);
      }
    }
    share_in_node(flat, q, tensors);
    mean_.agree();
  }

  /// The weight of this rank's node in a mean over nodes.
  double weight() const { return static_cast<double>(node_->size()) * layout_.nodes() / layout_.ranks; }
  /// Every rank of the node takes what its sender has in `flat`, which the others need not have.
  void share_in_node(Tensor flat, std::int64_t q, const std::vector<Tensor>& tensors) {
    if (!flat.defined()) flat = flat_like(tensors);
    node_->broadcast(flat, static_cast<int>(q % node_->size()));
    scatter_parts(flat, tensors);
  }
  bool sends_in(std::int64_t q, int rank) const {
    const int node = layout_.node_of(rank);
    return rank - layout_.first_of(node) == q % layout_.size_of(node);
  }
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
