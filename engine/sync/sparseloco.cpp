// SPDX-License-Identifier: MIT
#include "engine/sync/sparseloco.h"

#include "engine/kernels/elementwise.h"
#include "engine/sync/flat.h"

namespace ab {

SparseLocoStrategy::SparseLocoStrategy(Replica model, Comm& world, const SparseLocoOptions& options)
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

template <class Use> void SparseLocoStrategy::for_each_tensor(const Tensor& flat, const Use& use) const {
  auto codes = codes_.begin();
  for_each_part(params_, flat, [&](const Tensor&, const Tensor& part) { use(*codes++, part); });
}

void SparseLocoStrategy::end_round() {
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

void SparseLocoStrategy::after_step(TrainState& state) {
  agree_ = false;
  if (ends_round(state.step)) end_round();
}

void SparseLocoStrategy::begin_evaluation(TrainState&) {
  if (agree_) return;
  set_aside();
  scatter_parts(global_, params_);
  average_buffers();
}

void SparseLocoStrategy::finish(TrainState&) {
  if (!agree_) end_round();
}

void SparseLocoStrategy::save(StateDict& state) const {
  state.put("sparseloco.global", global_);
  state.put("sparseloco.residual", residual_);
}

void SparseLocoStrategy::load(const StateDict& saved, TrainState& state) {
  global_.copy_from(saved.tensor("sparseloco.global"));
  residual_.copy_from(saved.tensor("sparseloco.residual"));
  agree_ = ends_round(state.step);
}

}  // namespace ab
