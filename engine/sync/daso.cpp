// SPDX-License-Identifier: MIT
#include "engine/sync/daso.h"

#include <map>

#include "engine/kernels/elementwise.h"
#include "engine/sync/unknowns.h"

namespace ab {

DasoPace next_pace(const DasoPace& pace, const DasoOptions& options) {
  const DasoPace next =
      pace.skips > 1 ? DasoPace{pace.skips / 2, pace.wait - 1} : DasoPace{options.max_skips, options.max_skips / 4};
  return {next.skips, std::clamp<std::int64_t>(next.wait, 1, next.skips)};
}

void DasoController::epoch_end(double loss) {
  const bool is_first = best_ == std::numeric_limits<double>::max();
  if (is_first || loss < best_ * (1 - options_.stability)) {
    best_ = loss;
    bad_epochs_ = 0;
  } else if (++bad_epochs_ > options_.patience) {
    bad_epochs_ = 0;
    pace_ = next_pace(pace_, options_);
  }
}

void DasoController::save(StateDict& state) const {
  state.put("daso.skips", pace_.skips);
  state.put("daso.wait", pace_.wait);
  state.put("daso.best_loss", best_);
  state.put("daso.bad_epochs", bad_epochs_);
}

void DasoController::load(const StateDict& saved) {
  pace_ = {saved.integer("daso.skips"), saved.integer("daso.wait")};
  best_ = saved.number("daso.best_loss");
  bad_epochs_ = saved.integer("daso.bad_epochs");
}

namespace {

/// The state that decides about all that is to come: the pace and for how long the loss has not fallen.
struct Standing {
  DasoPace pace;
  std::int64_t bad_epochs = 0;
  auto operator<=>(const Standing&) const = default;
};

/// The best way to a standing: sends so far, and the standing one epoch before.
struct Way {
  std::int64_t sends = 0;
  std::optional<Standing> from{};
};

}  // namespace

std::vector<DasoPace> extreme_paces(const DasoOptions& options, const DasoCalendar& calendar, bool most) {
  std::vector<std::map<Standing, Way>> ways(1);
  ways[0][{{options.start_skips, options.start_wait}}] = {};
  bool first = true;  // the first loss is the best so far
  for (std::int64_t epoch = 0; epoch + 1 < calendar.epochs(); ++epoch) {
    std::map<Standing, Way> next;
    const bool decides = calendar.decides_after(epoch);
    for (const auto& [standing, way] : ways.back()) {
      const std::int64_t sends = way.sends + (calendar.blocking(epoch) ? 0 : calendar.sends(epoch, standing.pace));
      const auto go = [&, &from = standing](const Standing& to) {
        const auto [at, is_new] = next.try_emplace(to, Way{sends, from});
        if (!is_new && (most ? sends > at->second.sends : sends < at->second.sends)) at->second = {sends, from};
      };
      if (!decides) {
        go(standing);
        continue;
      }
      go({standing.pace, 0});
      if (first) continue;
      if (standing.bad_epochs < options.patience) go({standing.pace, standing.bad_epochs + 1});
      else go({next_pace(standing.pace, options), 0});
    }
    first = first && !decides;
    ways.push_back(std::move(next));
  }
  const std::int64_t last = calendar.epochs() - 1;
  std::optional<Standing> at;
  std::int64_t best = 0;
  for (const auto& [standing, way] : ways.back()) {
    const std::int64_t sends = way.sends + (calendar.blocking(last) ? 0 : calendar.sends(last, standing.pace));
    if (!at || (most ? sends > best : sends < best)) at = standing, best = sends;
  }
  std::vector<DasoPace> paces(ways.size());
  for (std::size_t epoch = ways.size(); epoch-- > 0;) {
    paces[epoch] = at->pace;
    at = ways[epoch].at(*at).from;
  }
  return paces;
}

DasoStrategy::DasoStrategy(Replica model, Comm& world, const DasoOptions& options, const LrSchedule& schedule,
                           SyncBn sync_bn, const GradientWire& wire)
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

bool DasoStrategy::sends_in(std::int64_t q, int rank) const {
  const int node = layout_.node_of(rank);
  return rank - layout_.first_of(node) == q % layout_.size_of(node);
}

std::string DasoStrategy::phase() const {
  const std::int64_t epoch = std::min(calendar_.epoch_of(done_), calendar_.epochs() - 1);
  return calendar_.blocking(epoch) ? kBlocking : kCycling;
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
  node_->broadcast(flat, static_cast<int>(q % node_->size()));
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
