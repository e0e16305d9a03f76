// SPDX-License-Identifier: MIT
#include "engine/sync/diloco.h"

#include <algorithm>

#include "engine/kernels/elementwise.h"
#include "engine/sync/flat.h"

namespace ab {

/// A part of the parameters, with what all ranks share of it.
struct DilocoStrategy::Fragment {
  std::vector<Tensor> params;   // of this rank's replica
  std::vector<Tensor> buffers;  // which travel with it
  Tensor global;                // θ, flat
  Tensor velocity;              // v
  Tensor sent{};                // Δ while it is in flight, its mean once it has arrived
  Tensor sent_buffers{};        // the buffers with it
  mutable Request request{}, buffer_request{};

  void wait() const {
    request.wait();
    buffer_request.wait();
  }
};

void DilocoOptions::validate(std::size_t trained_tensors) const {
  AB_CHECK(inner_steps >= 1 && fragments >= 1 && overlap_steps >= 0, "DiLoCo: H and F are at least 1 and τ at least 0");
  AB_CHECK(inner_steps % fragments == 0, "{} inner steps cannot be shared evenly by {} fragments", inner_steps,
           fragments);
  AB_CHECK(overlap_steps < round_steps(), "an overlap of {} steps does not fit into the {} steps between two fragments",
           overlap_steps, round_steps());
  AB_CHECK(fragments <= static_cast<std::int64_t>(trained_tensors),
           "the model has {} tensors to train, which cannot make {} fragments", trained_tensors, fragments);
}

std::vector<std::size_t> assign_fragments(const std::vector<std::int64_t>& elements, std::int64_t fragments) {
  std::vector<std::int64_t> filled(static_cast<std::size_t>(fragments), 0);
  std::vector<std::size_t> result;
  for (const std::int64_t n : elements) {
    const auto least = std::min_element(filled.begin(), filled.end());
    *least += n;
    result.push_back(static_cast<std::size_t>(least - filled.begin()));
  }
  return result;
}

DilocoEnd::DilocoEnd(const DilocoOptions& options, std::int64_t steps) {
  const std::int64_t h = options.round_steps();
  const std::int64_t ended = steps / h, sent = (steps + options.overlap_steps) / h;
  for (std::int64_t f = 0; f < options.fragments; ++f) {
    const bool flies = sent > ended && ended % options.fragments == f;
    const bool just_ended = steps % h == 0 && ended > 0 && (ended - 1) % options.fragments == f;
    in_flight.push_back(flies);
    partial.push_back(!flies && !just_ended && steps > 0);
  }
}

DilocoStrategy::DilocoStrategy(Replica model, Comm& world, const DilocoOptions& options, DType wire)
    : ReplicaStrategy(std::move(model), world), options_(options), wire_(wire), outer_(world.duplicate(kLabel)) {
  std::vector<Tensor> trained;
  std::vector<std::int64_t> elements;
  for (const Param* param : replica().params)
    if (param->trainable()) trained.push_back(param->value.value()), elements.push_back(param->numel());
  options_.validate(trained.size());
  fragments_.resize(static_cast<std::size_t>(options_.fragments));
  const std::vector<std::size_t> fragment_of = assign_fragments(elements, options_.fragments);
  for (std::size_t i = 0; i < trained.size(); ++i) fragments_[fragment_of[i]].params.push_back(trained[i]);
  fragments_.back().buffers = replica().buffers;
  for (Fragment& fragment : fragments_) {
    fragment.global = flat_like(fragment.params);
    gather_parts(fragment.params, fragment.global);
    fragment.velocity = flat_like(fragment.params);
    fragment.velocity.set_zero();
  }
}

DilocoStrategy::~DilocoStrategy() = default;

bool DilocoStrategy::agrees_after(std::int64_t step) const {
  const bool plain = options_.fragments == 1 && options_.overlap_steps == 0 && options_.mixing == 0;
  return step == 0 || (plain && step % options_.round_steps() == 0);
}

void DilocoStrategy::send(Fragment& fragment) {
  const Tensor delta = flat_like(fragment.params);
  gather_parts(fragment.params, delta);
  scale_in_place(delta, -1);
  add_in_place(delta, fragment.global);
  fragment.sent = cast(delta, wire_);
  outer_->ledger().set_phase(kOuter);
  fragment.request = outer_->all_reduce_async(fragment.sent, ReduceOp::mean);
  if (fragment.buffers.empty()) return;
  fragment.sent_buffers = flat_like(fragment.buffers);
  gather_parts(fragment.buffers, fragment.sent_buffers);
  fragment.buffer_request = outer_->all_reduce_async(fragment.sent_buffers, ReduceOp::mean);
}

void DilocoStrategy::take_outer_step(Fragment& fragment) {
  fragment.wait();
  const Tensor delta = cast(fragment.sent, DType::float32);
  scale_in_place(fragment.velocity, options_.outer_momentum);
  add_in_place(fragment.velocity, delta);
  axpy(-options_.outer_lr, delta, fragment.global);
  axpy(-options_.outer_lr * options_.outer_momentum, fragment.velocity, fragment.global);
  if (fragment.sent_buffers.defined()) scatter_parts(fragment.sent_buffers, fragment.buffers);
  fragment.sent = fragment.sent_buffers = {};
}

DilocoStrategy::Fragment* DilocoStrategy::ended_at(std::int64_t step) {
  const std::int64_t h = options_.round_steps();
  return step % h == 0 ? &fragments_[static_cast<std::size_t>((step / h - 1) % options_.fragments)] : nullptr;
}
DilocoStrategy::Fragment* DilocoStrategy::sent_at(std::int64_t step) { return ended_at(step + options_.overlap_steps); }

std::int64_t DilocoStrategy::step_kind(std::int64_t step) const {
  const std::int64_t h = options_.round_steps(), done = step + 1, ahead = done + options_.overlap_steps;
  const auto fragment = [&](std::int64_t at) { return at % h == 0 ? 1 + (at / h - 1) % options_.fragments : 0; };
  return fragment(ahead) * (options_.fragments + 1) + fragment(done);
}

void DilocoStrategy::pass(TrainState& state) {
  if (Fragment* const fragment = sent_at(state.step)) {
    fragment->sent = Tensor(fragment->global.shape(), wire_, fragment->global.device());
    if (!fragment->buffers.empty()) fragment->sent_buffers = flat_like(fragment->buffers);
  }
  if (Fragment* const fragment = ended_at(state.step)) fragment->sent = fragment->sent_buffers = {};
  agree_ = agrees_after(state.step);
}

void DilocoStrategy::after_step(TrainState& state) {
  if (Fragment* const fragment = sent_at(state.step)) send(*fragment);
  agree_ = agrees_after(state.step);
  Fragment* const ended = ended_at(state.step);
  if (!ended) return;
  Fragment& fragment = *ended;
  take_outer_step(fragment);
  if (options_.mixing == 0) return scatter_parts(fragment.global, fragment.params);
  for_each_part(fragment.params, fragment.global, [&](const Tensor& local, const Tensor& global) {
    scale_in_place(local, options_.mixing);
    axpy(1 - options_.mixing, global.view(local.shape()), local);
  });
}

void DilocoStrategy::show_global() {
  for (const Fragment& fragment : fragments_) scatter_parts(fragment.global, fragment.params);
}

void DilocoStrategy::begin_evaluation(TrainState&) {
  set_aside();
  show_global();
  average_buffers();
}

void DilocoStrategy::finish(TrainState& state) {
  const DilocoEnd end(options_, state.step);
  for (std::size_t f = 0; f < fragments_.size(); ++f)  // requests are waited for in the order they were started
    if (end.in_flight[f]) take_outer_step(fragments_[f]);
  for (std::size_t f = 0; f < fragments_.size(); ++f) {
    if (!end.partial[f]) continue;
    send(fragments_[f]);
    take_outer_step(fragments_[f]);
  }
  show_global();
  agree_ = true;
}

void DilocoStrategy::save(StateDict& state) const {
  for (std::size_t f = 0; f < fragments_.size(); ++f) {
    const Fragment& fragment = fragments_[f];
    state.put(fmt::format("diloco.{}.global", f), fragment.global);
    state.put(fmt::format("diloco.{}.velocity", f), fragment.velocity);
    if (!fragment.sent.defined()) continue;
    fragment.wait();
    state.put(fmt::format("diloco.{}.arrived", f), fragment.sent);
    if (fragment.sent_buffers.defined()) state.put(fmt::format("diloco.{}.arrived_buffers", f), fragment.sent_buffers);
  }
}

void DilocoStrategy::load(const StateDict& saved, TrainState& state) {
  for (std::size_t f = 0; f < fragments_.size(); ++f) {
    Fragment& fragment = fragments_[f];
    fragment.global.copy_from(saved.tensor(fmt::format("diloco.{}.global", f)));
    fragment.velocity.copy_from(saved.tensor(fmt::format("diloco.{}.velocity", f)));
    const auto arrived = [&](const std::string& name) {
      return saved.has(name) ? saved.tensor(name).to(fragment.global.device()) : Tensor();
    };
    fragment.sent = arrived(fmt::format("diloco.{}.arrived", f));
    fragment.sent_buffers = arrived(fmt::format("diloco.{}.arrived_buffers", f));
  }
  agree_ = agrees_after(state.step);
}

}  // namespace ab
