// SPDX-License-Identifier: MIT
#include "engine/sync/acpsgd.h"

#include <cmath>

#include "engine/backend/backend.h"
#include "engine/core/precision.h"
#include "engine/kernels/low_rank.h"

namespace ab {

GradientWire AcpSgdOptions::wire(DType dtype) const {
  return {.bucket_bytes = std::llround(bucket_mb * 1048576.0), .dtype = dtype};
}

LowRankSizes acp_sizes(const Shape& shape, GradientRank of) {
  of.min_rate /= 2;
  return low_rank_sizes(shape, of);
}

AcpSgdStrategy::AcpSgdStrategy(Replica replica, Comm& world, const AcpSgdOptions& options,
                               const CompressionStart& start)
    : CompressedGradients(std::move(replica), world, start), options_(options) {
  AB_CHECK(options_.rank > 0 && (options_.rank < 1 || options_.rank == std::floor(options_.rank)),
           "ACP-SGD needs a whole rank or a share below 1, got {}", options_.rank);
}

std::vector<Param*> AcpSgdStrategy::begin(std::int64_t step) {
  gradients_ = std::make_unique<LowRankGradients>(
      trained_params(), [this](const Shape& shape) { return acp_sizes(shape, options_); }, settings().seed, kName);
  gradients_->orthonormalise_q(step);
  gradients_->orthonormalise_p(step);  // of a Q turn after a P turn that overflowed
  std::vector<BucketItem> p_items, q_items;
  auto w = gradients_->matrices().begin();
  for (Param* param : trained_params()) {
    if (w != gradients_->matrices().end() && w->param == param) {
      p_items.push_back(p_item(*w));
      q_items.push_back(q_item(*w));
      ++w;
    } else {
      p_items.push_back(whole_item(param));
      q_items.push_back(p_items.back());
    }
  }
  const GradientWire wire = options_.wire(settings().gradients.dtype);
  p_buckets_ = std::make_unique<GradientBuckets>(p_items, world(), ReduceOp::mean, wire);
  q_buckets_ = std::make_unique<GradientBuckets>(q_items, world(), ReduceOp::mean, wire);
  buckets_of(step).take_hooks();
  set_gradient_exchange(exchange_);
  return {};
}

void AcpSgdStrategy::set_gradient_exchange(bool on) {
  CompressedGradients::set_gradient_exchange(on);
  exchange_ = on;
  if (p_buckets_) p_buckets_->set_exchange(on), q_buckets_->set_exchange(on);
}

BucketItem AcpSgdStrategy::whole_item(Param* param) {
  const Tensor gradient(param->value.shape(), DType::float32, device());
  return {.param = param, .elements = param->numel(), .unpack = [param, gradient](const Tensor& place) {
            gradient.copy_from(place);
            param->value.set_grad(gradient);
          }};
}

BucketItem AcpSgdStrategy::p_item(const LowRankMatrix& w) const {
  return {.param = w.param,
          .elements = w.p.numel(),
          .pack =
              [&w](const Tensor& gradient, const Tensor& place) {
                add_and_project(gradient, w.residual, w.q, w.work, w.own_p);
                place.copy_from(w.own_p);
              },
          .unpack = [&w](const Tensor& place) { w.p.copy_from(place); }};
}

BucketItem AcpSgdStrategy::q_item(const LowRankMatrix& w) const {
  return {.param = w.param,
          .elements = w.q.numel(),
          .pack =
              [this, &w](const Tensor& gradient, const Tensor& place) {
                const Tf32Scope exact(Precision::fp32);  // in backward or after it
                add_residual(gradient, w.residual, w.work);
                backend(device()).gemm({}, w.p, w.work, w.own_q);
                place.copy_from(w.own_q);
              },
          .unpack = [&w](const Tensor& place) { w.q.copy_from(place); }};
}

void AcpSgdStrategy::exchange(std::int64_t step) {
  const LowRankGradients& g = *gradients_;
  const bool p_turn = is_p_turn(step);
  GradientBuckets& buckets = buckets_of(step);
  g.keep_factors();
  buckets.finish();
  check_buckets(buckets);
  for (const LowRankMatrix& w : g.matrices())
    split_off_projection(p_turn ? RowFactors{w.own_p, w.q} : RowFactors{w.p, w.own_q}, {w.p, w.q}, failed(), w.work,
                         w.residual);
  p_turn ? g.orthonormalise_p(step) : g.orthonormalise_q(step);
  g.restore_factors(check());
  g.hand_over();
  buckets_of(step + 1).take_hooks();
}

}  // namespace ab
