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

#include "engine/kernels/elementwise.h"
#include "engine/kernels/tile_codes.h"
#include "engine/sync/flat.h"
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

  SparseLocoStrategy(Replica model, Comm& world, const SparseLocoOptions& options)
      : ReplicaStrategy(std::move(model), world), options_(options), own_(Device{}) {
    for (const Param* param : replica().params)
      if (param->trainable()) params_.push_back(param->value.value());
    AB_CHECK(!params_.empty(), "SparseLoCo: the model has nothing to train");
    for (const Tensor& param : params_) {
      codes_.push_back({.topk = {tile_grid(param.shape()), options_.topk}, .bits = options_.bits});
      codes_.back().floats = payload_bytes_;  // all floats first, which need multiples of 4
      payload_bytes_ += codes_.back().float_bytes();
    }
    for (TileCodes& codes : codes_) {
      codes.groups = payload_bytes_;
      payload_bytes_ += codes.group_bytes();
    }
    payload_bytes_ = (payload_bytes_ + 3) / 4 * 4;
    global_ = flat_like(params_);
    gather_parts(params_, global_);
    residual_ = flat_like(params_);
    residual_.set_zero();
    own_ = FiniteCheck(global_.device());
  }

  std::string phase() const override { return kSteps; }
  void after_step(TrainState& state) override {
    agree_ = false;
    if (ends_round(state.step)) end_round();
  }
  std::int64_t step_kind(std::int64_t step) const override { return ends_round(step + 1); }
  void pass(TrainState& state) override { agree_ = ends_round(state.step); }
  void begin_evaluation(TrainState& /*state*/) override {
    if (agree_) return;
    set_aside();
    scatter_parts(global_, params_);
    average_buffers();
  }
  void finish(TrainState& /*state*/) override {
    if (!agree_) end_round();
  }
  bool replicas_agree() const override { return agree_; }
  void save(StateDict& state) const override {
    state.put("sparseloco.global", global_);
    state.put("sparseloco.residual", residual_);
  }
  void load(const StateDict& saved, TrainState& state) override {
    global_.copy_from(saved.tensor("sparseloco.global"));
    residual_.copy_from(saved.tensor("sparseloco.residual"));
    agree_ = ends_round(state.step);
  }

 private:
  bool ends_round(std::int64_t step) const { return step % options_.inner_steps == 0; }

  void end_round() {
    world().ledger().set_phase(kOuter);
    const Tensor sum = flat_like(params_);  // β e + θ − θ_r
    gather_parts(params_, sum);
    scale_in_place(sum, -1);
    add_in_place(sum, global_);
    axpy(options_.beta, residual_, sum);
    own_.reset();
    own_.add(sum);

    const Tensor payload = Tensor::zeros({payload_bytes_}, DType::uint8, sum.device());
    for_each_tensor(sum, [&](const TileCodes& codes, const Tensor& part) {
      const Tensor positions({2 * codes.topk.slots()}, DType::uint8, part.device());
      const Tensor values({codes.topk.slots()}, DType::float32, part.device());
      largest_of_tiles(codes.topk, part, own_, positions, values);
      encode_tiles(codes, positions, values, payload);
      add_tiles(codes, payload, 1, -1, part);
    });
    own_.choose(residual_, sum, residual_);

    const int ranks = world().size();
    const Tensor gathered({ranks * payload_bytes_}, DType::uint8, sum.device());
    world().all_gather(payload, gathered);
    for_each_tensor(global_, [&](const TileCodes& codes, const Tensor& part) {
      add_tiles(codes, gathered, ranks, -options_.outer_lr / ranks, part);
    });
    scatter_parts(global_, params_);
    average_buffers();
    agree_ = true;
  }

  /// use(codes, part) for each tensor and its part of `flat`.
  template <class Use> void for_each_tensor(const Tensor& flat, const Use& use) const {
    auto codes = codes_.begin();
    for_each_part(params_, flat, [&](const Tensor&, const Tensor& part) { use(*codes++, part); });
  }

  SparseLocoOptions options_;
  std::vector<Tensor> params_;
  std::vector<TileCodes> codes_;  // of each
  std::int64_t payload_bytes_ = 0;
  Tensor global_, residual_;  // θ and e, flat
  FiniteCheck own_;
  bool agree_ = true;
};

}  // namespace ab
