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

#include "engine/sync/compressed_gradients.h"
#include "engine/sync/low_rank_gradients.h"

namespace ab {

/// min_rate is of the mean over both turns.
struct AcpSgdOptions : GradientRank {
  double bucket_mb = 25;  ///< of gradients in one bucket, in MiB

  GradientWire wire(DType dtype) const;  ///< of both factors
  bool operator==(const AcpSgdOptions&) const = default;
};

/// Like low_rank_sizes(): one factor travels at a time.
LowRankSizes acp_sizes(const Shape& shape, GradientRank of);

class AcpSgdStrategy final : public CompressedGradients {
 public:
  static constexpr const char* kName = "acpsgd";

  AcpSgdStrategy(Replica replica, Comm& world, const AcpSgdOptions& options, const CompressionStart& start);

  void pass(TrainState& state) override {
    if (p_buckets_) buckets_of(state.step).take_hooks();
  }
  void set_gradient_exchange(bool on) override;
  bool exchanges_in_backward() const override {
    return CompressedGradients::exchanges_in_backward() || (p_buckets_ && p_buckets_->leave_in_backward());
  }

 private:
  std::vector<Param*> begin(std::int64_t step) override;
  void exchange(std::int64_t step) override;
  std::int64_t compressed_kind(std::int64_t step) const override { return is_p_turn(step); }
  void save_compression(StateDict& state) const override { gradients_->save(state); }
  void load_compression(const StateDict& saved) override { gradients_->load(saved); }

  bool is_p_turn(std::int64_t step) const { return (step - settings().dense_steps) % 2 == 0; }
  GradientBuckets& buckets_of(std::int64_t step) const { return is_p_turn(step) ? *p_buckets_ : *q_buckets_; }
  /// The item that a parameter sends in a turn. A whole gradient has a place of its own, the same in both turns, as an optimizer
  /// on a GPU makes its table anew when gradients move.
  BucketItem whole_item(Param* param);
  BucketItem p_item(const LowRankMatrix& w) const;
  BucketItem q_item(const LowRankMatrix& w) const;

  AcpSgdOptions options_;
  std::unique_ptr<LowRankGradients> gradients_;
  std::unique_ptr<GradientBuckets> p_buckets_, q_buckets_;
  bool exchange_ = true;
};

}  // namespace ab
