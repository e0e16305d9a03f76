#pragma once
// SPDX-License-Identifier: MIT
//
// The split of all weights of a model at once. Every decomposition is computed on one rank and both of its
// factors are sent to all: factors of different ranks' decompositions would not belong together (signs and
// bases differ), and the work is spread over the ranks besides.

#include <functional>
#include <vector>

#include "ablowrank/factorise.h"
#include "engine/comm/comm.h"
#include "layers/layer.h"

namespace ab {

/// The weights of `model` that can be split: all matrices and convolutions but those that are kept at full
/// rank on purpose, and those with nothing to cut.
std::vector<Weight*> eligible_weights(Layer& model);

/// Whether the factors of rank r have fewer elements than the weight itself.
bool factors_are_smaller(const Weight& weight, std::int64_t r);

/// The rank that decomposes each weight: the most expensive weight first, to the rank with the least work so
/// far. Roughly, a decomposition costs m·n², and to find what directions are worth to the loss (loss_metric.h), where
/// `by_loss`, five times O³.
std::vector<int> assign_owners(const std::vector<Weight*>& weights, bool by_loss, int world_size);

/// The ranks r after that cut as a rehearsal is told them (Unknowns::rank).
std::vector<std::int64_t> told_ranks(const std::vector<Weight*>& weights, std::int64_t cut);

/// Collective over `world`; on return all ranks hold bitwise equal decompositions of the dense `weights`.
/// Traffic: one all-reduce of a number per weight, and from each owner one broadcast of r(O + K + 1) floats
/// per weight. `policy` nullptr: no cut. With `is_sent`, weights and ranks for which it is false are left undefined,
/// and not sent. `cut`: the number of the cut, for told_ranks().
std::vector<LowRank> decompose_all(const std::vector<Weight*>& weights, const RankPolicy* policy, Comm& world,
                                   std::int64_t cut,
                                   const std::function<bool(const Weight&, std::int64_t)>& is_sent = {});
/// The same with any decomposition: `decompose(i)` is called on the owner of weight i alone. A rehearsal, in which no
/// owner tells the others, asks for `rank(i)`.
std::vector<LowRank> decompose_on_owners(const std::vector<Weight*>& weights, const std::vector<int>& owners,
                                         const std::function<LowRank(std::size_t)>& decompose,
                                         const std::function<std::int64_t(std::size_t)>& rank, Comm& world,
                                         const std::function<bool(const Weight&, std::int64_t)>& is_sent = {});

}  // namespace ab
