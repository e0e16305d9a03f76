// SPDX-License-Identifier: MIT
#include "ablowrank/split.h"

#include <algorithm>
#include <numeric>

#include "engine/sync/flat.h"
#include "engine/sync/unknowns.h"

namespace ab {
namespace {

/// `rank`: a number, or the policy that chooses it.
template <class Rank> LowRank decompose_named(Weight& weight, Rank rank) {
  try {
    return decompose(weight.matrix(), rank);
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", weight.name(), error.what()));
  }
}

}  // namespace

std::vector<Weight*> eligible_weights(Layer& model) {
  std::vector<Weight*> weights;
  for (Weight* w : inventory_of(model).weights)
    if (w->role() == ParamRole::weight && w->n() > 1) weights.push_back(w);
  return weights;
}

bool factors_are_smaller(const Weight& weight, std::int64_t r) {
  return r * (weight.rows() + weight.columns()) < weight.rows() * weight.columns();
}

std::vector<int> assign_owners(const std::vector<Weight*>& weights, bool by_loss, int world_size) {
  std::vector<double> cost;
  for (const Weight* w : weights) {
    const auto m = static_cast<double>(w->m()), n = static_cast<double>(w->n()), rows = static_cast<double>(w->rows());
    cost.push_back(m * n * n + (by_loss ? 5 * rows * rows * rows : 0));
  }
  std::vector<std::size_t> by_cost(weights.size());
  std::iota(by_cost.begin(), by_cost.end(), 0);
  std::stable_sort(by_cost.begin(), by_cost.end(), [&](auto i, auto j) { return cost[i] > cost[j]; });

  std::vector<int> owners(weights.size());
  std::vector<double> load(static_cast<std::size_t>(world_size), 0.0);
  for (std::size_t i : by_cost) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += cost[i];
    owners[i] = static_cast<int>(least - load.begin());
  }
  return owners;
}

std::vector<std::int64_t> told_ranks(const std::vector<Weight*>& weights, std::int64_t cut) {
  std::vector<std::int64_t> ranks;
  for (const Weight* weight : weights) ranks.push_back(Unknowns::current()->rank(weight->name(), cut));
  return ranks;
}

std::vector<LowRank> decompose_all(const std::vector<Weight*>& weights, const RankPolicy* policy, Comm& world,
                                   std::int64_t cut, const std::function<bool(const Weight&, std::int64_t)>& is_sent) {
  std::vector<std::int64_t> ranks;  // in a rehearsal
  if (Unknowns::current() && policy && Unknowns::current()->rank) ranks = told_ranks(weights, cut);
  else if (Unknowns::current())
    for (const Weight* weight : weights) {
      const std::vector<double> equal(static_cast<std::size_t>(weight->n()), 1.0);
      ranks.push_back(policy ? policy->choose(equal) : weight->n());
    }
  const auto decompose = [&](std::size_t i) {
    return ranks.empty() ? decompose_named(*weights[i], policy) : decompose_named(*weights[i], ranks[i]);
  };
  const auto rank = [&](std::size_t i) { return ranks.at(i); };
  return decompose_on_owners(weights, assign_owners(weights, false, world.size()), decompose, rank, world, is_sent);
}

std::vector<LowRank> decompose_on_owners(const std::vector<Weight*>& weights, const std::vector<int>& owners,
                                         const std::function<LowRank(std::size_t)>& decompose,
                                         const std::function<std::int64_t(std::size_t)>& rank, Comm& world,
                                         const std::function<bool(const Weight&, std::int64_t)>& is_sent) {
  std::vector<LowRank> result(weights.size());
  const Tensor r_of_weight = Tensor::zeros({static_cast<std::int64_t>(weights.size())}, DType::int64);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    std::int64_t& r = r_of_weight.data<std::int64_t>()[i];
    if (owners[i] == world.rank()) result[i] = decompose(i), r = result[i].r();
    else if (Unknowns::current()) r = rank(i);
  }
  if (!weights.empty()) world.all_reduce(r_of_weight, ReduceOp::max);
  for (std::size_t i = 0; is_sent && i < weights.size(); ++i) {
    std::int64_t& r = r_of_weight.data<std::int64_t>()[i];
    if (!is_sent(*weights[i], r)) r = 0, result[i] = {};
  }

  for (int owner = 0; owner < world.size(); ++owner) {
    std::vector<Tensor> values;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const std::int64_t r = r_of_weight.data<std::int64_t>()[i];
      if (owners[i] != owner || r == 0) continue;
      const Device device = weights[i]->dense().value.value().device();
      if (owner != world.rank())
        result[i] = {Tensor({weights[i]->rows(), r}, DType::float32, device), Tensor({r}, DType::float32, device),
                     Tensor({r, weights[i]->columns()}, DType::float32, device)};
      values.insert(values.end(), {result[i].outer, result[i].sigma, result[i].inner});
    }
    broadcast_flat(world, values, owner);
  }
  return result;
}

}  // namespace ab
