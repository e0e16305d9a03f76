// SPDX-License-Identifier: MIT
#include "engine/sync/daso.h"

#include "engine/kernels/elementwise.h"
#include "engine/sync/flat.h"
#include "engine/sync/unknowns.h"

namespace ab {

DasoStrategy::DasoStrategy(Replica model, Comm& world, const DasoOptions& options, const LrSchedule& schedule,
                           SyncBn sync_bn, const GradientWire& wire)
    : ReplicaStrategy(std::move(model), world, sync_bn,
                      [node = std::max(1, options.node_size)](int rank) { return rank / node; }),
      options_(options),
      calendar_(options, schedule),
      controller_(options),
      layout_{world.size(), options.node_size},
      node_(split_nodes(world, layout_)),
      mean_(this->replica().values(), wire.dtype) {
  AB_CHECK(options_.start_skips >= 1 && options_.max_skips >= 1, "DASO sends every B >= 1 steps");
  AB_CHECK(options_.start_wait >= 1 && options_.start_wait <= options_.start_skips,
           "DASO cannot wait {} steps for what it sends every {}", options_.start_wait, options_.start_skips);
  for (int q = 0; q < layout_.size_of(0); ++q) {
    std::unique_ptr<Comm> comm = world.split([&](int rank) { return sends_in(q, rank) ? 0 : 1 + rank; }, kLabel);
    across_.push_back(sends_in(q) ? std::move(comm) : nullptr);
  }
  if (options_.node_size > 1) gradients_.emplace(replica().params, *node_, ReduceOp::mean, wire);
}

int DasoStrategy::sender_in_node(std::int64_t q) const { return static_cast<int>(q % node_->size()); }
bool DasoStrategy::sends_in(std::int64_t q, int rank) const {
  const int node = layout_.node_of(rank);
  return rank - layout_.first_of(node) == q % layout_.size_of(node);
}
bool DasoStrategy::sends_in(std::int64_t q) const { return sends_in(q, world().rank()); }

std::string DasoStrategy::phase() const {
  const std::int64_t epoch = std::min(calendar_.epoch_of(done_), calendar_.epochs() - 1);
  return calendar_.blocking(epoch) ? kBlocking : kCycling;
}

void DasoStrategy::set_gradient_exchange(bool on) {
  if (gradients_) gradients_->set_exchange(on);
}

void DasoStrategy::finish_grads(TrainState&) {
  if (gradients_) gradients_->finish();
}

DasoStrategy::Flight DasoStrategy::send(bool passes) {
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

void DasoStrategy::share_in_node(Tensor flat, std::int64_t q, const std::vector<Tensor>& tensors) {
  if (!flat.defined()) flat = flat_like(tensors);
  node_->broadcast(flat, sender_in_node(q));
  scatter_parts(flat, tensors);
}

void DasoStrategy::merge(Flight flight) {
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

void DasoStrategy::average(bool may_take_16_bits) {
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

void DasoStrategy::advance(TrainState& state, bool passes) {
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

bool DasoStrategy::sends_at(std::int64_t b, std::int64_t last) const {
  const auto [skips, wait] = controller_.pace();
  return b % skips == 0 && b + wait < last;
}

std::int64_t DasoStrategy::step_kind(std::int64_t step) const {
  const std::int64_t epoch = calendar_.epoch_of(step), b = calendar_.step_in_epoch(step);
  const std::int64_t last = calendar_.last_of(epoch);
  const bool mine = sends_in(q_ % layout_.size_of(0));
  if (calendar_.blocking(epoch) || b == last) return 2 * calendar_.blocking(epoch) + mine;
  const bool merges = flight_ && flight_->due == b;
  return 4 + 8 * (sends_at(b, last) ? 1 + mine : 0) + (merges ? 1 + sends_in(flight_->q) : 0);
}

void DasoStrategy::on_epoch_end(TrainState&, double mean_loss) {
  const Unknowns* const told = Unknowns::current();
  if (!told || !told->decision) return controller_.epoch_end(mean_loss);
  const auto values = told->decision(calendar_.epoch_of(done_ - 1));
  controller_.set_pace({values.at("skips"), values.at("wait")});
}

std::map<std::string, std::int64_t> DasoStrategy::decision() const {
  return {{"skips", controller_.pace().skips}, {"wait", controller_.pace().wait}};
}

void DasoStrategy::begin_evaluation(TrainState&) {
  if (agree_) return;
  set_aside();
  all_reduce_flat(world(), replica().tensors(), ReduceOp::mean);
}

void DasoStrategy::finish(TrainState&) {
  if (agree_) return;
  if (flight_) flight_->request.wait();
  flight_.reset();
  all_reduce_flat(world(), replica().tensors(), ReduceOp::mean);
  agree_ = true;
}

void DasoStrategy::save(StateDict& state) const {
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

void DasoStrategy::load(const StateDict& saved, TrainState& state) {
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

}  // namespace ab
