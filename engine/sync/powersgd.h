#pragma once
// SPDX-License-Identifier: MIT
//
// PowerSGD (Vogels, Karimireddy, Jaggi 2019, arXiv 1905.13727): one step of the power iteration per update finds a
// low-rank approximation of the mean gradient, without any rank forming that mean. With rows as factors
// (low_rank_gradients.h), on rank w:
//   M_w = G_w + E_w
//   P   = orthonormal rows of Σ_w Q·M_wᵀ          all-reduce; Q is that of the step before
//   Q   = mean over w of Q_w,  Q_w = P·M_w        all-reduce
//   Ĝ   = Pᵀ·Q                                    the gradient, equal on all ranks
//   E_w = M_w − Pᵀ·Q_w
// E takes off the rank's own projection and not Ĝ, as the published algorithm does: only the mean of E over ranks enters
// Ĝ, and that is the same; but E − (M − Ĝ) would grow without bound by how much a rank differs from the mean.
// PyTorch's powerSGD_hook is the other form; its parameters, Q and mean residual are ours (tests/golden/methods).
// Momentum is the optimizer's. The authors' program steps by d + v with v = 0.9 v + d, which is neither ours nor Nesterov's.
// Three collectives a step: what is exchanged in full, P and Q.

#include "engine/sync/compressed_gradients.h"
#include "engine/sync/low_rank_gradients.h"

namespace ab {

struct PowerSgdOptions : GradientRank {
  bool operator==(const PowerSgdOptions&) const = default;
};

class PowerSgdStrategy final : public CompressedGradients {
 public:
  static constexpr const char* kName = "powersgd";

  PowerSgdStrategy(Replica replica, Comm& world, const PowerSgdOptions& options, const CompressionStart& start);

 private:
  std::vector<Param*> begin(std::int64_t step) override;
  void exchange(std::int64_t step) override;
  void save_compression(StateDict& state) const override { gradients_->save(state); }
  void load_compression(const StateDict& saved) override { gradients_->load(saved); }

  PowerSgdOptions options_;
  std::unique_ptr<LowRankGradients> gradients_;
};

}  // namespace ab
