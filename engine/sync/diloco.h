#pragma once
// SPDX-License-Identifier: MIT
//
// DiLoCo (Douillard et al. 2023, arXiv 2311.08105): every rank trains its own replica θ_i for H steps with its own
// optimizer (the inner one). How far the ranks have come on average counts as a gradient, the outer one, for a second
// optimizer with Nesterov momentum, which moves a model θ that all ranks share:
//   Δ ← mean over ranks of θ − θ_i      v ← μ v + Δ      θ ← θ − η_o (Δ + μ v)      θ_i ← θ
// Streaming DiLoCo cuts the parameters into F fragments, which take turns: with h = H/F, round j ends after (j + 1) h
// steps and is that of fragment j mod F. Its Δ leaves τ steps before the end and travels while they are computed; what
// the rank has learned in them is mixed in again, L being its parameters when the round ends:
//   θ_i ← (1 − a) θ + a L
// F = 1, τ = 0, a = 0 is DiLoCo; with H = 1, η_o = 1, μ = 0 besides, and SGD, it is data-parallel training to rounding.
// Δ may travel in 16 bits, rounded once a round. Moments of the inner optimizer stay with their rank and go on from round
// to round. Buffers are averaged plainly, together with the last fragment. Each rank clips its own gradients and, with float16, skips updates by itself. A
// validation looks at θ with the mean of the buffers. When the run ends, every fragment that has been trained since its
// last round takes the outer step of its partial round, and what is in flight arrives.

#include <algorithm>

#include "engine/kernels/elementwise.h"
#include "engine/sync/flat.h"
#include "engine/sync/replica_strategy.h"

namespace ab {

struct DilocoOptions {
  std::int64_t inner_steps = 20;   ///< H
  double outer_lr = 0.7;           ///< η_o
  double outer_momentum = 0.9;     ///< μ
  std::int64_t fragments = 1;      ///< F, a divisor of H
  std::int64_t overlap_steps = 0;  ///< τ < H/F
  double mixing = 0;               ///< a, 0 to 1

  std::int64_t round_steps() const { return inner_steps / fragments; }  ///< h

  /// Throws Error(config) when they do not fit each other, or a model of so many trained tensors.
  void validate(std::size_t trained_tensors) const {
    AB_CHECK(inner_steps >= 1 && fragments >= 1 && overlap_steps >= 0,
             "DiLoCo: H and F are at least 1 and τ at least 0");
    AB_CHECK(inner_steps % fragments == 0, "{} inner steps cannot be shared evenly by {} fragments", inner_steps,
             fragments);
    AB_CHECK(overlap_steps < round_steps(),
             "an overlap of {} steps does not fit into the {} steps between two fragments", overlap_steps,
             round_steps());
    AB_CHECK(fragments <= static_cast<std::int64_t>(trained_tensors),
             "the model has {} tensors to train, which cannot make {} fragments", trained_tensors, fragments);
  }

  bool operator==(const DilocoOptions&) const = default;
};

/// The fragment of each tensor: in forward order, each goes to the fragment that has the fewest elements so far, so
/// that fragments are of like size and each has layers of all depths.
inline std::vector<std::size_t> assign_fragments(const std::vector<std::int64_t>& elements, std::int64_t fragments) {
  std::vector<std::int64_t> filled(static_cast<std::size_t>(fragments), 0);
  std::vector<std::size_t> result;
  for (const std::int64_t n : elements) {
    const auto least = std::min_element(filled.begin(), filled.end());
    *least += n;
    result.push_back(static_cast<std::size_t>(least - filled.begin()));
  }
  return result;
}

class DilocoStrategy final : public ReplicaStrategy {
 public:
  static constexpr const char* kSteps = "inner";  ///< phase of the updates
  static constexpr const char* kOuter = "outer";  ///< phase of the outer steps
  static constexpr const char* kLabel = "outer";  ///< of their communicator in the ledger

  /// `wire`: the type in which outer gradients travel.
  DilocoStrategy(Replica model, Comm& world, const DilocoOptions& options, DType wire = DType::float32)
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

  std::string phase() const override { return kSteps; }

  void after_step(TrainState& state) override {
    if (Fragment* const fragment = sent_at(state.step)) send(*fragment);
    agree_ = agrees_after(state.step);
    Fragment* const ended = ended_at(state.step);
    if (!ended) return;
    take_outer_step(*ended);
    if (options_.mixing == 0) return scatter_parts(ended->global, ended->params);
    for_each_part(ended->params, ended->global, [&](const Tensor& local, const Tensor& global) {
      scale_in_place(local, options_.mixing);
      axpy(1 - options_.mixing, global.view(local.shape()), local);
    });
  }

  std::int64_t step_kind(std::int64_t step) const override {
    const std::int64_t h = options_.round_steps(), done = step + 1, ahead = done + options_.overlap_steps;
    const auto fragment = [&](std::int64_t at) { return at % h == 0 ? 1 + (at / h - 1) % options_.fragments : 0; };
    return fragment(ahead) * (options_.fragments + 1) + fragment(done);
  }

  void pass(TrainState& state) override {
    if (Fragment* const fragment = sent_at(state.step)) {
      fragment->sent = Tensor(fragment->global.shape(), wire_, fragment->global.device());
      if (!fragment->buffers.empty()) fragment->sent_buffers = flat_like(fragment->buffers);
    }
    if (Fragment* const fragment = ended_at(state.step)) fragment->sent = fragment->sent_buffers = {};
    agree_ = agrees_after(state.step);
  }

  void begin_evaluation(TrainState& /*state*/) override {
    set_aside();
    show_global();
    average_buffers();
  }

  void finish(TrainState& state) override {
    // One fragment may be on its way, others have been trained since their last round.
    const std::int64_t h = options_.round_steps(), ended = state.step / h,
                       sent = (state.step + options_.overlap_steps) / h;
    const std::int64_t flies = sent > ended ? ended % options_.fragments : -1;
    const std::int64_t just_ended = ended > 0 && state.step % h == 0 ? (ended - 1) % options_.fragments : -1;
    if (flies >= 0) take_outer_step(fragments_[static_cast<std::size_t>(flies)]);
    for (std::int64_t f = 0; f < options_.fragments; ++f) {
      if (f == flies || f == just_ended || state.step == 0) continue;
      send(fragments_[static_cast<std::size_t>(f)]);
      take_outer_step(fragments_[static_cast<std::size_t>(f)]);
    }
    show_global();
    agree_ = true;
  }

  bool replicas_agree() const override { return agree_; }

  /// Collective: what is in flight arrives first, which changes no result.
  void save(StateDict& state) const override {
    for (std::size_t f = 0; f < fragments_.size(); ++f) {
      const Fragment& fragment = fragments_[f];
      state.put(fmt::format("diloco.{}.global", f), fragment.global);
      state.put(fmt::format("diloco.{}.velocity", f), fragment.velocity);
      if (!fragment.sent.defined()) continue;
      fragment.wait();
      state.put(fmt::format("diloco.{}.arrived", f), fragment.sent);
      if (fragment.sent_buffers.defined())
        state.put(fmt::format("diloco.{}.arrived_buffers", f), fragment.sent_buffers);
    }
  }

  void load(const StateDict& saved, TrainState& state) override {
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

 private:
  /// A part of the parameters, with what all ranks share of it.
  struct Fragment {
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

  /// The fragment that is sent after an update, and that whose round ends with it; null: none.
  Fragment* sent_at(std::int64_t step) { return ended_at(step + options_.overlap_steps); }
  Fragment* ended_at(std::int64_t step) {
    const std::int64_t h = options_.round_steps();
    return step % h == 0 ? &fragments_[static_cast<std::size_t>((step / h - 1) % options_.fragments)] : nullptr;
  }

  void send(Fragment& fragment) {
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

  /// Waits for what was sent and takes the outer step.
  void take_outer_step(Fragment& fragment) {
    fragment.wait();
    const Tensor delta = cast(fragment.sent, DType::float32);
    scale_in_place(fragment.velocity, options_.outer_momentum);
    add_in_place(fragment.velocity, delta);
    axpy(-options_.outer_lr, delta, fragment.global);
    axpy(-options_.outer_lr * options_.outer_momentum, fragment.velocity, fragment.global);
    if (fragment.sent_buffers.defined()) scatter_parts(fragment.sent_buffers, fragment.buffers);
    fragment.sent = fragment.sent_buffers = {};
  }

  void show_global() {
    for (const Fragment& fragment : fragments_) scatter_parts(fragment.global, fragment.params);
  }
  bool agrees_after(std::int64_t step) const {
    const bool plain = options_.fragments == 1 && options_.overlap_steps == 0 && options_.mixing == 0;
    return step == 0 || (plain && step % options_.round_steps() == 0);
  }

  DilocoOptions options_;
  DType wire_;
  std::unique_ptr<Comm> outer_;  // apart from the world's, whose collectives go on while a Δ is in flight
  std::vector<Fragment> fragments_;
  bool agree_ = true;
};

}  // namespace ab
