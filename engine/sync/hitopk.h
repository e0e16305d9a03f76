#pragma once
// SPDX-License-Identifier: MIT
//
// HiTopKComm (Shi et al., MLSys 2021, arXiv 2010.10458): MSTopK where ranks of a node are close and nodes are far. With m
// nodes of n ranks, G of d elements over all parameters, rank j of a node:
//   in the node   S = slice j of Σ_node G       reduce-scatter, whole; ⌈d/n⌉ elements, M = S + E
//   across        k of M selected, all-gather over the ranks j of all nodes; slice j of Ĝ = 1/(m·n) · Σ_nodes M[I]
//   in the node   Ĝ = all slices                all-gather, whole
// The residual E belongs to the slice: one of the model's size on each node. Zeros that fill the last slice up are never
// selected. With n = 1 this is MSTopK.

#include <algorithm>

#include "engine/kernels/elementwise.h"
#include "engine/sync/mstopk.h"

namespace ab {

struct HiTopkOptions {
  double density = 0.01;  ///< share of the elements of a slice that its rank sends
  int rounds = 25;        ///< of the search for the threshold

  bool operator==(const HiTopkOptions&) const = default;
};

class HiTopkStrategy final : public CompressedGradients {
 public:
  static constexpr const char *kName = "hitopk", *kNode = "node", *kAcross = "across";  ///< the last two: groups

  /// Consecutive ranks are one node. Collective.
  HiTopkStrategy(Replica replica, Comm& world, int ranks_of_node, const HiTopkOptions& options,
                 const CompressionStart& start)
      : CompressedGradients(std::move(replica), world, start), options_(options) {
    AB_CHECK(ranks_of_node >= 1 && world.size() % ranks_of_node == 0, "{} ranks are no whole nodes of {}", world.size(),
             ranks_of_node);
    node_ = world.split([=](int rank) { return rank / ranks_of_node; }, kNode);
    across_ = world.split([=](int rank) { return rank % ranks_of_node; }, kAcross);
  }

 private:
  std::vector<Param*> begin(std::int64_t /*step*/) override {
    const std::int64_t ranks = node_->size();
    gradients_ = std::make_unique<FlatGradients>(trained_params(), /*with_residual=*/false, ranks);
    const std::int64_t all = gradients_->elements(), slice = (all + ranks - 1) / ranks;
    const std::int64_t of_parameters = std::clamp<std::int64_t>(all - slice * node_->rank(), 0, slice);
    average_ = std::make_unique<SparseAverage>(of_parameters, elements_of_density(options_.density, slice), *across_,
                                               device());
    slice_ = Tensor({slice}, DType::float32, device());
    residual_ = Tensor::zeros({slice}, DType::float32, device());
    kept_ = Tensor({slice}, DType::float32, device());
    const DType wire = settings().gradients.dtype;
    const auto room_on_wire = [wire](const Tensor& t) {
      return t.dtype() == wire ? t : Tensor(t.shape(), wire, t.device());
    };
    sent_ = room_on_wire(gradients_->work());
    summed_ = room_on_wire(slice_);
    return {};
  }

  void exchange(std::int64_t step) override {
    gradients_->gather();
    // Inside a node whole gradients travel, in their type on the wire.
    cast_into(sent_, gradients_->work());
    node_->reduce_scatter(sent_, summed_, ReduceOp::sum);
    cast_into(slice_, summed_);
    add_in_place(slice_, residual_);
    kept_.copy_from(residual_);
    average_->run(slice_, residual_, 1.0 / world().size(),
                  MsTopkStrategy::select_by_sampling(options_.rounds, settings().seed, world().rank(), step), check());
    cast_into(summed_, slice_);
    node_->all_gather(summed_, sent_);
    cast_into(gradients_->work(), sent_);
    check().add(gradients_->work());  // another slice may have failed
    check().choose(residual_, residual_, kept_);
    gradients_->hand_over();
  }

  void save_compression(StateDict& state) const override { state.put(std::string(kName) + ".residual", residual_); }
  void load_compression(const StateDict& saved) override {
    residual_.copy_from(saved.tensor(std::string(kName) + ".residual"));
  }

  HiTopkOptions options_;
  std::unique_ptr<Comm> across_;
  std::unique_ptr<FlatGradients> gradients_;
  std::unique_ptr<SparseAverage> average_;
  Tensor slice_, residual_, kept_;
  Tensor sent_, summed_;  // all gradients and a slice, in the type on the wire
};

}  // namespace ab
