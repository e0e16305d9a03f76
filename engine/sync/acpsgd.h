#pragma once
// SPDX-License-Identifier: MIT
//
// ACP-SGD, alternate compressed PowerSGD (Zhang, Zhang, Shi, Chu, Li, ICDCS 2023, arXiv 2306.08881): one factor per
// update instead of both, so half of PowerSGD's bytes, and one all-reduce that starts as soon as backward has a gradient.
// With rows as factors (low_rank_gradients.h), M_w = G_w + E_w on rank w, and updates that take turns:
//   P turn   Q has orthonormal rows    P_w = Q·M_wᵀ   E_w = M_w − P_wᵀ·Q   P = mean P_w   Ĝ = Pᵀ·Q
//   Q turn   P has orthonormal rows    Q_w = P·M_w    E_w = M_w − Pᵀ·Q_w   Q = mean Q_w   Ĝ = Pᵀ·Q
// The factor that was exchanged is made orthonormal for the next turn right away, off the critical path.
// Gradients that are exchanged in full travel in the same buckets. The first compressed update is a P turn, and whose turn it is
// follows from the step alone: an update that overflowed counts.

#include <cmath>

#include "engine/backend/backend.h"
#include "engine/core/precision.h"
#include "engine/kernels/low_rank.h"
#include "engine/sync/compressed_gradients.h"
#include "engine/sync/low_rank_gradients.h"

namespace ab {

/// min_rate is of the mean over both turns.
struct AcpSgdOptions : GradientRank {
  double bucket_mb = 25;  ///< of gradients in one bucket, in MiB

  /// Of both factors.
  GradientWire wire(DType dtype) const { return {.bucket_bytes = std::llround(bucket_mb * 1048576.0), .dtype = dtype}; }
  bool operator==(const AcpSgdOptions&) const = default;
};

/// Like low_rank_sizes(): one factor travels at a time.
inline LowRankSizes acp_sizes(const Shape& shape, GradientRank of) {
  of.min_rate /= 2;
  return low_rank_sizes(shape, of);
}

class AcpSgdStrategy final : public CompressedGradients {
 public:
  static constexpr const char* kName = "acpsgd";

  AcpSgdStrategy(Replica replica, Comm& world, const AcpSgdOptions& options, const CompressionStart& start)
      : CompressedGradients(std::move(replica), world, start), options_(options) {
    options_.check("ACP-SGD");
  }

  void pass(TrainState& state) override {
    if (p_buckets_) buckets_of(state.step).take_hooks();
  }
  void set_gradient_exchange(bool on) override {
    CompressedGradients::set_gradient_exchange(on);
    if (p_buckets_) p_buckets_->set_exchange(on), q_buckets_->set_exchange(on);
  }
  bool exchanges_in_backward() const override {
    return CompressedGradients::exchanges_in_backward() || (p_buckets_ && p_buckets_->leave_in_backward());
  }

 private:
  std::vector<Param*> begin(std::int64_t step) override {
    const auto sizes = [this](const Shape& shape) { return acp_sizes(shape, options_); };
    gradients_ = std::make_unique<LowRankGradients>(trained_params(), sizes, settings().seed, kName);
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

  void exchange(std::int64_t step) override {
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

  std::int64_t compressed_kind(std::int64_t step) const override { return is_p_turn(step); }
  void save_compression(StateDict& state) const override { gradients_->save(state); }
  void load_compression(const StateDict& saved) override { gradients_->load(saved); }

  bool is_p_turn(std::int64_t step) const { return (step - settings().dense_steps) % 2 == 0; }
  GradientBuckets& buckets_of(std::int64_t step) const { return is_p_turn(step) ? *p_buckets_ : *q_buckets_; }

  /// The item that a parameter sends in a turn. A whole gradient has a place of its own, the same in both turns, as an optimizer
  /// on a GPU makes its table anew when gradients move.
  BucketItem whole_item(Param* param) {
    const Tensor gradient(param->value.shape(), DType::float32, device());
    return {.param = param, .elements = param->numel(), .unpack = [param, gradient](const Tensor& place) {
              gradient.copy_from(place);
              param->value.set_grad(gradient);
            }};
  }

  BucketItem p_item(const LowRankMatrix& w) const {
    const auto pack = [&w](const Tensor& gradient, const Tensor& place) {
      add_and_project(gradient, w.residual, w.q, w.work, w.own_p);
      place.copy_from(w.own_p);
    };
    return {w.param, w.p.numel(), pack, [&w](const Tensor& place) { w.p.copy_from(place); }};
  }

  BucketItem q_item(const LowRankMatrix& w) const {
    const auto pack = [this, &w](const Tensor& gradient, const Tensor& place) {
      const Tf32Scope exact(Precision::fp32);  // in backward or after it
      add_residual(gradient, w.residual, w.work);
      backend(device()).gemm({}, w.p, w.work, w.own_q);
      place.copy_from(w.own_q);
    };
    return {w.param, w.q.numel(), pack, [&w](const Tensor& place) { w.q.copy_from(place); }};
  }

  AcpSgdOptions options_;
  std::unique_ptr<LowRankGradients> gradients_;
  std::unique_ptr<GradientBuckets> p_buckets_, q_buckets_;
};

}  // namespace ab
