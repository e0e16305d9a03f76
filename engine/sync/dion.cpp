// SPDX-License-Identifier: MIT
#include "engine/sync/dion.h"

#include <algorithm>
#include <cmath>

#include "engine/backend/backend.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/low_rank.h"

namespace ab {
namespace {

/// Of Adam, for all but weights: as the authors have them.
constexpr AdamWOptions kAdam{.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0};

std::int64_t outputs(const LowRankMatrix& w) { return w.param->value.shape()[0]; }
std::int64_t inputs(const LowRankMatrix& w) { return w.param->numel() / outputs(w); }
/// Whether the longer side, that of P, is that of the inputs.
bool is_wide(const LowRankMatrix& w) { return outputs(w) < inputs(w); }
/// Below this share of the longest row of R another is rounding, of sums in float32 or of what travels.
double noise_of(DType wire) { return wire == DType::bfloat16 ? 0x1p-9 : wire == DType::float16 ? 0x1p-12 : 1e-6; }
Tensor as_matrix(const Tensor& values, const LowRankMatrix& w) { return values.view({outputs(w), inputs(w)}); }

}  // namespace

DionStrategy::DionStrategy(Replica replica, Comm& world, const DionOptions& options, const CompressionStart& start)
    : CompressedGradients(std::move(replica), world, start), options_(options) {
  AB_CHECK(options_.rank > 0 && options_.rank <= 1, "Dion needs a share of the smaller side above 0, up to 1, got {}",
           options_.rank);
}

std::vector<Param*> DionStrategy::begin(std::int64_t) {
  std::vector<Param*> weights;
  for (Param* p : trained_params())
    (p->role == ParamRole::weight && p->value.shape().rank() > 1 ? weights : rest_).push_back(p);
  const auto sizes = [this](const Shape& shape) {
    const std::int64_t n = shape[0], m = shape.numel() / n;
    const auto share = static_cast<std::int64_t>(std::ceil(options_.rank * static_cast<double>(std::min(n, m))));
    return LowRankSizes{.n = std::max(n, m), .m = std::min(n, m), .r = share};
  };
  gradients_ = std::make_unique<LowRankGradients>(weights, sizes, settings().seed, kName);
  for (const LowRankMatrix& w : gradients_->matrices()) updates_.emplace_back(w.q.shape(), DType::float32, device());
  std::vector<Param*> directions;
  directions_.reserve(rest_.size());
  for (const Param* p : rest_) {
    const Var zeros(Tensor::zeros(p->value.shape(), DType::float32, device()), true);
    directions.push_back(&directions_.emplace_back(Param{fmt::format("{}.{}", kName, p->name), zeros, p->role}));
  }
  adam_ = make_adamw(directions, kAdam);
  adam_->set_skip_overflow(true);
  return rest_;
}

void DionStrategy::exchange(std::int64_t step) {
  const LowRankGradients& g = *gradients_;
  Backend& math = backend(device());
  g.keep_factors();
  for (const LowRankMatrix& w : g.matrices()) {
    add_residual(w.gradient(), w.residual, w.work);
    math.gemm({.transpose_b = !is_wide(w)}, w.q, as_matrix(w.work, w), w.p);
  }
  reduce(g.all_p(), ReduceOp::mean);
  g.orthonormalise_p(step);
  for (const LowRankMatrix& w : g.matrices())
    math.gemm({.transpose_b = is_wide(w)}, w.p, as_matrix(w.work, w), w.own_q);
  reduce(g.all_own_q(), ReduceOp::mean);
  finish_rest();
  const double noise = noise_of(settings().gradients.dtype);
  for (std::size_t i = 0; i < updates_.size(); ++i) {
    const LowRankMatrix& w = g.matrices()[i];
    const double scale = std::sqrt(static_cast<double>(outputs(w)) / static_cast<double>(inputs(w)));
    split_into_directions({w.own_q, 1 - options_.momentum}, {updates_[i], scale}, noise, w.q);
    const auto product = [&](const Tensor& q) { return is_wide(w) ? RowFactors{q, w.p} : RowFactors{w.p, q}; };
    split_off_projection(product(w.own_q), product(updates_[i]), failed(), as_matrix(w.work, w),
                         as_matrix(w.residual, w));
  }
  g.restore_factors(check());
  g.hand_over();
  direct_rest();
}

void DionStrategy::direct_rest() {
  if (rest_.empty()) return;
  const Tensor one_or_nan({1}, DType::float32, device());
  fill(one_or_nan, 1);
  axpy(1, cast(failed(), DType::float32), one_or_nan);
  for (std::size_t i = 0; i < rest_.size(); ++i) {
    scale_in_place(rest_[i]->value.grad(), one_or_nan);
    directions_[i].value.value().set_zero();
    directions_[i].value.set_grad(rest_[i]->value.grad());
  }
  adam_->step(1);  // left out where the step failed
  for (std::size_t i = 0; i < rest_.size(); ++i) {
    const Tensor direction = directions_[i].value.value();
    scale_in_place(direction, -1);
    check().choose(direction, direction, rest_[i]->value.grad());
    rest_[i]->value.set_grad(direction);
  }
}

void DionStrategy::save_compression(StateDict& state) const {
  gradients_->save(state);
  adam_->save(state);
}

void DionStrategy::load_compression(const StateDict& saved) {
  gradients_->load(saved);
  adam_->load(saved, adam_->params(), device());
}

}  // namespace ab
