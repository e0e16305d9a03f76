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

  MsTopkStrategy(Replica replica, Comm& world, const MsTopkOptions& options, const CompressionStart& start)
      : CompressedGradients(std::move(replica), world, start), options_(options) {}

  /// The selection for an update, on a rank.
  static SparseAverage::Select select_by_sampling(int rounds, std::uint64_t seed, int rank, std::int64_t step) {
    const Philox random{seed, stream_of(kName) + static_cast<std::uint64_t>(rank)};
    return [=](const Selector& selector, const Tensor& x, std::int64_t count, std::uint32_t* indices) {
      selector.multi_sampling(x, count, rounds, random, static_cast<std::uint64_t>(step), indices);
    };
  }

 private:
  std::vector<Param*> begin(std::int64_t /*step*/) override {
    gradients_ = std::make_unique<FlatGradients>(trained_params(), /*with_residual=*/true);
    const std::int64_t n = gradients_->elements();
    average_ = std::make_unique<SparseAverage>(n, elements_of_density(options_.density, n), world(), device());
    return {};
  }
  void exchange(std::int64_t step) override {
    gradients_->gather();
    average_->run(gradients_->work(), gradients_->residual(), 1.0 / world().size(),
                  select_by_sampling(options_.rounds, settings().seed, world().rank(), step), check());
    gradients_->hand_over();
  }
  void save_compression(StateDict& state) const override { gradients_->save(state, kName); }
  void load_compression(const StateDict& saved) override { gradients_->load(saved, kName); }

  MsTopkOptions options_;
  std::unique_ptr<FlatGradients> gradients_;
  std::unique_ptr<SparseAverage> average_;
};

}  // namespace ab
