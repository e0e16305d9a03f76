// SPDX-License-Identifier: MIT
#include "engine/sync/hitopk.h"

#include <algorithm>

#include "engine/kernels/elementwise.h"

namespace ab {
namespace {

/// Where values of t travel: t itself, if that has their type.
Tensor room_on_wire(const Tensor& t, DType wire) { return t.dtype() == wire ? t : Tensor(t.shape(), wire, t.device()); }

}  // namespace

HiTopkSizes hitopk_sizes(std::int64_t elements, int ranks_of_node, double density) {
  const std::int64_t slice = (elements + ranks_of_node - 1) / ranks_of_node;
  return {slice, elements_of_density(density, slice)};
}

HiTopkStrategy::HiTopkStrategy(Replica replica, Comm& world, int ranks_of_node, const HiTopkOptions& options,
                               const CompressionStart& start)
    : CompressedGradients(std::move(replica), world, start), options_(options) {
  AB_CHECK(ranks_of_node >= 1 && world.size() % ranks_of_node == 0, "{} ranks are no whole nodes of {}", world.size(),
           ranks_of_node);
  node_ = world.split([=](int rank) { return rank / ranks_of_node; }, kNode);
  across_ = world.split([=](int rank) { return rank % ranks_of_node; }, kAcross);
}

std::vector<Param*> HiTopkStrategy::begin(std::int64_t) {
  gradients_ = std::make_unique<FlatGradients>(trained_params(), /*with_residual=*/false, node_->size());
  const std::int64_t all = gradients_->elements();
  const auto [slice, sent] = hitopk_sizes(all, node_->size(), options_.density);
  const std::int64_t of_parameters = std::clamp<std::int64_t>(all - slice * node_->rank(), 0, slice);
  average_ = std::make_unique<SparseAverage>(of_parameters, sent, *across_, device());
  slice_ = Tensor({slice}, DType::float32, device());
  residual_ = Tensor::zeros({slice}, DType::float32, device());
  kept_ = Tensor({slice}, DType::float32, device());
  const DType wire = settings().gradients.dtype;
  sent_ = room_on_wire(gradients_->work(), wire);
  summed_ = room_on_wire(slice_, wire);
  return {};
}

void HiTopkStrategy::exchange(std::int64_t step) {
  gradients_->gather();
  // Inside a node whole gradients travel, in their type on the wire.
  cast_into(sent_, gradients_->work());
  node_->reduce_scatter(sent_, summed_, ReduceOp::sum);
  cast_into(slice_, summed_);
  add_in_place(slice_, residual_);
  kept_.copy_from(residual_);
  average_->run(slice_, residual_, 1.0 / world().size(),
                select_by_sampling(options_.rounds, settings().seed, world().rank(), step), check());
  cast_into(summed_, slice_);
  node_->all_gather(summed_, sent_);
  cast_into(gradients_->work(), sent_);
  check().add(gradients_->work());  // another slice may have failed
  check().choose(residual_, residual_, kept_);
  gradients_->hand_over();
}

void HiTopkStrategy::save_compression(StateDict& state) const {
  state.put(std::string(kName) + ".residual", residual_);
}

void HiTopkStrategy::load_compression(const StateDict& saved) {
  residual_.copy_from(saved.tensor(std::string(kName) + ".residual"));
}

}  // namespace ab
