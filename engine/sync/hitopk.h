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

#include "engine/sync/mstopk.h"

namespace ab {

struct HiTopkOptions {
  double density = 0.01;  ///< share of the elements of a slice that its rank sends
  int rounds = 25;        ///< of the search for the threshold

  bool operator==(const HiTopkOptions&) const = default;
};

/// Elements of a slice, and how many of them are sent.
struct HiTopkSizes {
  std::int64_t slice = 0, sent = 0;
};
HiTopkSizes hitopk_sizes(std::int64_t elements, int ranks_of_node, double density);

class HiTopkStrategy final : public CompressedGradients {
 public:
  static constexpr const char *kName = "hitopk", *kNode = "node", *kAcross = "across";  ///< the last two: groups

  /// Consecutive ranks are one node. Collective.
  HiTopkStrategy(Replica replica, Comm& world, int ranks_of_node, const HiTopkOptions& options,
                 const CompressionStart& start);

 private:
  std::vector<Param*> begin(std::int64_t step) override;
  void exchange(std::int64_t step) override;
  void save_compression(StateDict& state) const override;
  void load_compression(const StateDict& saved) override;

  HiTopkOptions options_;
  std::unique_ptr<Comm> node_, across_;
  std::unique_ptr<FlatGradients> gradients_;
  std::unique_ptr<SparseAverage> average_;
  Tensor slice_, residual_, kept_;
  Tensor sent_, summed_;  // all gradients and a slice, in the type on the wire
};

}  // namespace ab
