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

#include <memory>

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
  void validate(std::size_t trained_tensors) const;

  bool operator==(const DilocoOptions&) const = default;
};

/// The fragment of each tensor: in forward order, each goes to the fragment that has the fewest elements so far, so
/// that fragments are of like size and each has layers of all depths.
std::vector<std::size_t> assign_fragments(const std::vector<std::int64_t>& elements, std::int64_t fragments);

/// Which fragments a run of `steps` updates leaves unfinished.
struct DilocoEnd {
  std::vector<bool> in_flight, partial;  ///< by fragment: its Δ is on the way; it was trained after its last round

  DilocoEnd(const DilocoOptions& options, std::int64_t steps);
};

class DilocoStrategy final : public ReplicaStrategy {
 public:
  static constexpr const char* kSteps = "inner";  ///< phase of the updates
  static constexpr const char* kOuter = "outer";  ///< phase of the outer steps
  static constexpr const char* kLabel = "outer";  ///< of their communicator in the ledger

  /// `wire`: the type in which outer gradients travel.
  DilocoStrategy(Replica replica, Comm& world, const DilocoOptions& options, DType wire = DType::float32);
  ~DilocoStrategy() override;

  std::string phase() const override { return kSteps; }
  void set_gradient_exchange(bool /*on*/) override {}
  void finish_grads(TrainState& /*state*/) override {}
  void after_step(TrainState& state) override;
  std::int64_t step_kind(std::int64_t step) const override;
  void pass(TrainState& state) override;
  void begin_evaluation(TrainState& state) override;
  void finish(TrainState& state) override;
  bool replicas_agree() const override { return agree_; }
  /// Collective: what is in flight arrives first, which changes no result.
  void save(StateDict& state) const override;
  void load(const StateDict& saved, TrainState& state) override;

 private:
  struct Fragment;

  /// The fragment that is sent after an update, and that whose round ends with it; null: none.
  Fragment* sent_at(std::int64_t step);
  Fragment* ended_at(std::int64_t step);
  void send(Fragment& fragment);
  /// Waits for what was sent and takes the outer step.
  void take_outer_step(Fragment& fragment);
  void show_global();
  bool agrees_after(std::int64_t step) const;

  DilocoOptions options_;
  DType wire_;
  std::unique_ptr<Comm> outer_;  // apart from the world's, whose collectives go on while a Δ is in flight
  std::vector<Fragment> fragments_;
  bool agree_ = true;
};

}  // namespace ab
