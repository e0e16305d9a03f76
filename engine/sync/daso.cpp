// SPDX-License-Identifier: MIT
#include "engine/sync/daso.h"

#include "engine/kernels/elementwise.h"
#include "engine/sync/flat.h"
#include "engine/sync/flat_parts.h"

namespace ab {

std::vector<int> daso_senders(const NodeLayout& layout, std::int64_t q) {
  std::vector<int> senders;
  for (int node = 0; node < layout.nodes(); ++node)
    senders.push_back(layout.first_of(node) + static_cast<int>(q % layout.size_of(node)));
  return senders;
}

DasoStrategy::DasoStrategy(Replica model, Comm& world, const DasoOptions& options, const LrSchedule& schedule,
                           SyncBn sync_bn, const GradientWire& wire)
    : ReplicaStrategy(std::move(model), world, sync_bn, world.rank() / std::max(1, options.node_size)),
      options_(options),
      calendar_(options, schedule),
      controller_(options),
      layout_{world.size(), options.node_size},
      node_(split_nodes(world, layout_)) {
  AB_CHECK(options_.start_skips >= 1 && options_.max_skips >= 1, "DASO sends every B >= 1 steps");
  AB_CHECK(options_.start_wait >= 1 && options_.start_wait <= options_.start_skips,
           "DASO cannot wait {} steps for what it sends every {}", options_.start_wait, options_.start_skips);
  for (int q = 0; q < layout_.size_of(0); ++q) {
    std::unique_ptr<Comm> comm = world.split(sends_in(q) ? 0 : 1, kLabel);
    across_.push_back(sends_in(q) ? std::move(comm) : nullptr);
  }
  for (const Param* param : replica().params) params_.push_back(param->value.value());
  if (options_.node_size > 1) gradients_.emplace(replica().params, *node_, ReduceOp::mean, wire);
}

int DasoStrategy::sender_in_node(std::int64_t q) const { return static_cast<int>(q % node_->size()); }
bool DasoStrategy::sends_in(std::int64_t q) const { return node_->rank() == sender_in_node(q); }

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

DasoStrategy::Flight DasoStrategy::send(const std::vector<Tensor>& tensors, const char* phase) {
  world().ledger().set_phase(phase);
  Flight flight{.q = q_++ % layout_.size_of(0), .wait = controller_.pace().wait};
  if (!sends_in(flight.q)) return flight;
  flight.sent = flat_like(tensors);
  gather_parts(tensors, flight.sent);
  // The mean over nodes that may differ in size.
  const double weight = static_cast<double>(node_->size()) * layout_.nodes() / layout_.ranks;
  if (weight != 1) scale_in_place(flight.sent, weight);
  // Here blocking exchanges may travel in 16 bits, as the authors' release sends them. It keeps the rounded values as
  // parameters, which loses small updates; until that is mended everything travels as float32.
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
    for_each_part(params_, flight.sent,
                  [&](const Tensor& param, const Tensor& part) { axpy(own / all, param.view(part.shape()), part); });
  }
  share_in_node(flight.sent, flight.q, params_);
}

void DasoStrategy::average() {
  Flight flight = send(replica().tensors(), kAverage);
  flight.request.wait();
  share_in_node(flight.sent, flight.q, replica().tensors());
}

void DasoStrategy::after_step(TrainState& state) {
  const std::int64_t epoch = calendar_.epoch_of(done_), b = calendar_.step_in_epoch(done_);
  const std::int64_t last = calendar_.last_of(epoch);
  done_ = state.step;
  agree_ = calendar_.blocking(epoch) || b == last;
  if (agree_) {
    average();
    if (b == last) q_ = 0;
    return;
  }
  std::optional<Flight> next;
  if (const auto [skips, wait] = controller_.pace(); b % skips == 0 && b + wait < last) {
    next = send(params_, kMerge);
    next->due = b + wait;
  }
  if (flight_ && flight_->due == b) {
    merge(std::move(*flight_));
    flight_.reset();
  }
  if (next) flight_ = std::move(next);
}

void DasoStrategy::on_epoch_end(TrainState&, double mean_loss) { controller_.epoch_end(mean_loss); }

std::map<std::string, std::int64_t> DasoStrategy::decision() const {
  return {{"skips", controller_.pace().skips}, {"wait", controller_.pace().wait}};
}

void DasoStrategy::begin_evaluation(TrainState&) {
  if (agree_) return;
  for (const Tensor& tensor : replica().tensors()) aside_.push_back(tensor.clone());
  all_reduce_flat(world(), replica().tensors(), ReduceOp::mean);
}

void DasoStrategy::end_evaluation(TrainState&) {
  const std::vector<Tensor> tensors = replica().tensors();
  for (std::size_t i = 0; i < aside_.size(); ++i) tensors[i].copy_from(aside_[i]);
  aside_.clear();
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
  if (!saved.has("daso.flight.q")) return;
  flight_ = Flight{.q = saved.integer("daso.flight.q"),
                   .due = saved.integer("daso.flight.due"),
                   .wait = saved.integer("daso.flight.wait")};
  if (sends_in(flight_->q)) flight_->sent = saved.tensor("daso.flight.arrived").to(params_.front().device());
}

}  // namespace ab
