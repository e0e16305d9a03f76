#pragma once
// SPDX-License-Identifier: MIT
//
// MSTopK with an all-gather (Shi et al., MLSys 2021, arXiv 2010.10458): every rank sends the elements of its gradient,
// all parameters taken together, that a threshold by multi-sampling selects (engine/kernels/select.h).
//   M_i = G_i + E_i     I_i = k positions with nearly the largest |M_i|     Ĝ = 1/p · Σ_i M_i[I_i]
//   E_i = M_i with zeros at I_i                                              (sparse_average.h)
// Where the run of elements starts that fills up to k is drawn from Philox(seed, rank) at the step.

#include "engine/sync/compressed_gradients.h"
#include "engine/sync/flat.h"
#include "engine/sync/sparse_average.h"

namespace ab {

struct MsTopkOptions {
  double density = 0.01;  ///< share of elements that a rank sends
  int rounds = 25;        ///< of the search for the threshold

  bool operator==(const MsTopkOptions&) const = default;
};

class MsTopkStrategy final : public CompressedGradients {
 public:
  static constexpr const char* kName = "mstopk";

  MsTopkStrategy(Replica replica, Comm& world, const MsTopkOptions& options, const CompressionStart& start);

 private:
  std::vector<Param*> begin(std::int64_t step) override;
  void exchange(std::int64_t step) override;
  void save_compression(StateDict& state) const override { gradients_->save(state, kName); }
  void load_compression(const StateDict& saved) override { gradients_->load(saved, kName); }

  MsTopkOptions options_;
  std::unique_ptr<FlatGradients> gradients_;
  std::unique_ptr<SparseAverage> average_;
};

/// The selection of MSTopK for an update, on a rank.
SparseAverage::Select select_by_sampling(int rounds, std::uint64_t seed, int rank, std::int64_t step);

}  // namespace ab
