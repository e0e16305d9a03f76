#pragma once
// SPDX-License-Identifier: MIT
//
// SparseLoCo (Sarfi et al. 2025, arXiv 2508.15706): local training whose rounds end with few values of 2 bits. Every rank
// r of R trains its own replica θ_r for H steps with its own optimizer. Of how far it has come from the model θ that all
// ranks share it sends the largest elements; the rest stays with it, fades by β, and is added to what it does in the next
// round (error feedback in place of DiLoCo's momentum):
//   e_r ← β e_r + θ − θ_r                     e_r = 0 at the start
//   I_r = the k largest |e_r| of every tile   tiles of 64×64 elements, of vectors runs of 64, which may be smaller than k
//   v̂_r = e_r[I_r] in 2 bits                  by one codebook for each tensor (engine/kernels/tile_codes.h)
//   e_r ← e_r − v̂_r                           so the error of the quantiser is fed back too
//   θ ← θ − α/R · Σ_r v̂_r      θ_r ← θ        one all-gather, added in the order of ranks; who has not sent counts as 0
// The mean is the paper's, over all ranks; the authors' program averages over those that sent an element. With all elements, 32 bits
// and α = 1 it is local averaging to rounding, with H = 1 and SGD besides data-parallel training.
//
// Moments of the inner optimizer stay with their rank and go on from round to round. Buffers are averaged after each round. Each
// rank clips its own gradients and, with float16, skips updates by itself. A rank whose e_r is not finite sends zeros, keeps
// the one that it had, and goes on from θ. A validation looks at θ with the mean of the buffers. A round that the end of the
// run cuts short ends like the others.

#include "engine/kernels/tile_codes.h"
#include "engine/sync/replica_strategy.h"

namespace ab {

struct SparseLocoOptions {
  std::int64_t inner_steps = 20;  ///< H
  std::int64_t topk = 64;         ///< k of 4096
  int bits = 2;                   ///< of a value: 2, or 32: as it is
  double beta = 0.95;             ///< β
  double outer_lr = 1;            ///< α

  bool operator==(const SparseLocoOptions&) const = default;
};

class SparseLocoStrategy final : public ReplicaStrategy {
 public:
  static constexpr const char* kName = "sparseloco";
  static constexpr const char *kSteps = "inner",
                              *kOuter = "outer";  ///< phases of the updates, and of the ends of rounds

  SparseLocoStrategy(Replica replica, Comm& world, const SparseLocoOptions& options);

  std::string phase() const override { return kSteps; }
  void set_gradient_exchange(bool /*on*/) override {}
  void finish_grads(TrainState& /*state*/) override {}
  void after_step(TrainState& state) override;
  std::int64_t step_kind(std::int64_t step) const override { return ends_round(step + 1); }
  void pass(TrainState& state) override { agree_ = ends_round(state.step); }
  void begin_evaluation(TrainState& state) override;
  void finish(TrainState& state) override;
  bool replicas_agree() const override { return agree_; }
  void save(StateDict& state) const override;
  void load(const StateDict& saved, TrainState& state) override;

  /// That a rank sends at the end of a round, besides buffers.
  std::int64_t payload_bytes() const { return payload_bytes_; }

 private:
  bool ends_round(std::int64_t step) const { return step % options_.inner_steps == 0; }
  void end_round();
  /// use(codes, part) for each tensor and its part of `flat`.
  template <class Use> void for_each_tensor(const Tensor& flat, const Use& use) const;

  SparseLocoOptions options_;
  std::vector<Tensor> params_;
  std::vector<TileCodes> codes_;  // of each
  std::int64_t payload_bytes_ = 0;
  Tensor global_, residual_;  // θ and e, flat
  FiniteCheck own_;
  bool agree_ = true;
};

}  // namespace ab
