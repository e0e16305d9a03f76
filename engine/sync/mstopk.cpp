// SPDX-License-Identifier: MIT
#include "engine/sync/mstopk.h"

namespace ab {

SparseAverage::Select select_by_sampling(int rounds, std::uint64_t seed, int rank, std::int64_t step) {
  const Philox random{seed, stream_of(MsTopkStrategy::kName) + static_cast<std::uint64_t>(rank)};
  return [=](const Selector& selector, const Tensor& x, std::int64_t count, std::uint32_t* indices) {
    selector.multi_sampling(x, count, rounds, random, static_cast<std::uint64_t>(step), indices);
  };
}

MsTopkStrategy::MsTopkStrategy(Replica replica, Comm& world, const MsTopkOptions& options,
                               const CompressionStart& start)
    : CompressedGradients(std::move(replica), world, start), options_(options) {}

std::vector<Param*> MsTopkStrategy::begin(std::int64_t) {
  gradients_ = std::make_unique<FlatGradients>(trained_params(), /*with_residual=*/true);
  const std::int64_t n = gradients_->elements();
  average_ = std::make_unique<SparseAverage>(n, elements_of_density(options_.density, n), world(), device());
  return {};
}

void MsTopkStrategy::exchange(std::int64_t step) {
  gradients_->gather();
  average_->run(gradients_->work(), gradients_->residual(), 1.0 / world().size(),
                select_by_sampling(options_.rounds, settings().seed, world().rank(), step), check());
  gradients_->hand_over();
}

}  // namespace ab
