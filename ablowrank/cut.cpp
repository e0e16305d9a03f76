// SPDX-License-Identifier: MIT
#include "ablowrank/cut.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "ablowrank/loss_metric.h"
#include "ablowrank/loss_ranks.h"
#include "engine/backend/factorisations.h"
#include "engine/kernels/reduce.h"
#include "engine/sync/flat.h"
#include "engine/sync/unknowns.h"

namespace ab {
namespace {

std::string key_of(const Weight& weight) { return "late_cut.observed." + weight.name(); }

/// Of sums over all ranks, so that all ranks find the same.
void check_observed(const OutputMoments& moments, const std::string& name) {
  const double positions = moments.positions().item(1), weight = moments.gradient_weight().item(1);
  AB_CHECK_KIND(
      numerics,
      positions > 0 && weight > 0 && std::isfinite(positions) && std::isfinite(weight) && all_finite(moments.sums()),
      "{}: in none of the steps that were observed before the cut were outputs and gradients finite; lower the "
      "learning rate, or observe more steps (--late-cut.gather-steps)",
      name);
}

/// The shares of their sum that the first k/16 of n values hold, k = 0 … 16.
std::vector<double> held_shares(std::span<const double> values, std::int64_t n) {
  const double all = std::accumulate(values.begin(), values.end(), 0.0);
  std::vector<double> shares;
  for (std::int64_t k = 0; k <= kSensitivityIntervals; ++k) {
    const std::int64_t count = k * n / kSensitivityIntervals;
    shares.push_back(all > 0 ? std::accumulate(values.begin(), values.begin() + count, 0.0) / all : 1);
  }
  return shares;
}

/// σ² of a weight, descending: the eigenvalues of the smaller of WᵀW and WWᵀ.
std::vector<double> squared_singular_values(const Weight& weight) {
  const Tensor w = in_float64(weight.matrix());
  AB_CHECK_KIND(numerics, all_finite(w),
                "{} holds NaN or infinity; lower the learning rate or look for the first bad step", weight.name());
  const bool tall = w.dim(0) >= w.dim(1);
  if (w.device().kind == DeviceKind::shapes) return std::vector<double>(static_cast<std::size_t>(weight.n()), 0);
  std::vector<double> values = symmetric_eigenvalues(product(w, w, tall, !tall));
  for (double& value : values) value = std::max(value, 0.0);
  return values;
}

/// What all directions of a weight are worth, on every rank.
struct Sensitivity {
  double positions = 1;  ///< a sample
  std::vector<double> increases, by_sigma;
};

/// From the metrics of this rank's weights.
std::vector<Sensitivity> share_sensitivity(const std::vector<Weight*>& weights,
                                           const std::vector<std::unique_ptr<LossMetric>>& metrics,
                                           const CutObservers& observers, Comm& world) {
  std::vector<Tensor> values;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    values.push_back(Tensor::zeros({1 + weights[i]->rows() + kSensitivityIntervals + 1}, DType::float64));
    if (!metrics[i]) continue;
    double* const at = values.back().data<double>();
    at[0] = positions_per_sample(observers.of(i));
    const std::vector<double>& increases = metrics[i]->increases();
    const std::vector<double> by_sigma = held_shares(squared_singular_values(*weights[i]), weights[i]->n());
    std::ranges::copy(by_sigma, std::ranges::copy(increases, at + 1).out);
  }
  all_reduce_flat(world, values, ReduceOp::sum);
  std::vector<Sensitivity> sensitivity;
  for (const Tensor& of_weight : values) {
    const std::span<double> all = of_weight.span<double>();
    const auto by_sigma = all.end() - kSensitivityIntervals - 1;
    sensitivity.push_back({all[0], {all.begin() + 1, by_sigma}, {by_sigma, all.end()}});
  }
  return sensitivity;
}

std::vector<std::int64_t> ranks_of_cut(const std::vector<Weight*>& weights,
                                       const std::vector<std::int64_t>& earlier_ranks,
                                       const std::vector<Sensitivity>& sensitivity, const LateCutOptions& options,
                                       std::size_t index) {
  if (Unknowns::current() && Unknowns::current()->rank) return told_ranks(weights, static_cast<std::int64_t>(index));
  const double keep = options.kept(index);
  if (options.rank_policy == RanksBy::ratio) return ranks_by_ratio(weights, keep, options.rank_multiple);
  std::vector<CutWeight> cut;
  for (std::size_t i = 0; i < weights.size(); ++i)
    cut.push_back({weights[i]->rows(), weights[i]->columns(), sensitivity[i].positions, sensitivity[i].increases,
                   earlier_ranks[i]});
  const RankRounding rounding{options.rank_multiple};
  return options.rank_policy == RanksBy::loss_share ? ranks_by_share(cut, keep, rounding)
                                                    : ranks_by_budget(cut, keep, rounding);
}

/// Of those whose weights are cut, from their owners to all ranks.
void share_bias_changes(std::vector<CutResult>& results, Comm& world) {
  std::vector<Tensor> changes;
  for (CutResult& result : results) {
    if (!result.parts.sigma.defined()) continue;
    if (!result.bias_change.defined()) result.bias_change = Tensor::zeros({result.weight->outputs()});
    changes.push_back(result.bias_change);
  }
  all_reduce_flat(world, changes, ReduceOp::sum);
}

}  // namespace

CutObservers::CutObservers(const std::vector<Weight*>& weights) : weights_(weights) {
  for (Weight* weight : weights_) {
    const Device device = (weight->factored() ? weight->outer() : weight->dense()).value.value().device();
    moments_.push_back(std::make_unique<OutputMoments>(weight->rows(), device));
    weight->set_observer(moments_.back().get());
  }
}

CutObservers::~CutObservers() {
  for (Weight* weight : weights_) weight->set_observer(nullptr);
}

void CutObservers::save(StateDict& state) const {
  for (std::size_t i = 0; i < weights_.size(); ++i) state.put(key_of(*weights_[i]), moments_[i]->sums());
}

void CutObservers::load(const StateDict& state) {
  for (std::size_t i = 0; i < weights_.size(); ++i) moments_[i]->sums().copy_from(state.tensor(key_of(*weights_[i])));
}

std::vector<std::int64_t> ranks_by_ratio(const std::vector<Weight*>& weights, double ratio, std::int64_t multiple) {
  std::vector<std::int64_t> ranks;
  for (const Weight* weight : weights) {
    const std::int64_t n = weight->n(), r = RankRounding{multiple}.of_share(ratio, n);
    ranks.push_back(factors_are_smaller(*weight, r) ? r : n);
  }
  return ranks;
}

std::vector<CutResult> cut_all(const std::vector<Weight*>& weights, const std::vector<std::int64_t>& earlier_ranks,
                               const std::vector<Param*>& biases, const CutObservers& observers,
                               const LateCutOptions& options, std::size_t index, Comm& world) {
  AB_ASSERT(observers.size() == weights.size());
  const std::vector<int> owners = assign_owners(weights, true, world.size());
  std::vector<CutResult> results(weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) results[i].weight = weights[i];

  std::vector<std::unique_ptr<LossMetric>> metrics(weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    world.all_reduce(observers.of(i).sums(), ReduceOp::sum);
    check_observed(observers.of(i), weights[i]->name());
    if (owners[i] == world.rank()) metrics[i] = std::make_unique<LossMetric>(observers.of(i));
  }
  const std::vector<Sensitivity> sensitivity = share_sensitivity(weights, metrics, observers, world);
  const std::vector<std::int64_t> ranks = ranks_of_cut(weights, earlier_ranks, sensitivity, options, index);

  const auto rank = [&](std::size_t i) { return ranks[i] == weights[i]->n() ? 0 : ranks[i]; };
  const auto decompose_owned = [&](std::size_t i) {
    if (rank(i) == 0) return LowRank{};  // it stays dense, and nothing is sent
    if (biases[i] && !Unknowns::current())
      results[i].bias_change = metrics[i]->bias_change(biases[i]->value.value(), ranks[i]);
    return metrics[i]->cut(weights[i]->matrix(), ranks[i]);
  };
  std::vector<LowRank> parts = decompose_on_owners(weights, owners, decompose_owned, rank, world);
  for (std::size_t i = 0; i < weights.size(); ++i) results[i].parts = std::move(parts[i]);
  share_bias_changes(results, world);

  for (std::size_t i = 0; i < sensitivity.size(); ++i) {
    const std::vector<double>& increases = sensitivity[i].increases;
    LayerSensitivity& of_weight = results[i].sensitivity;
    of_weight.by_loss = held_shares(increases, weights[i]->n());
    of_weight.by_sigma = sensitivity[i].by_sigma;
    if (!results[i].parts.sigma.defined()) continue;
    of_weight.increase = std::accumulate(increases.begin() + ranks[i], increases.end(), 0.0);
    const double all = std::accumulate(increases.begin(), increases.end(), 0.0);
    if (all > 0) of_weight.kept = 1 - of_weight.increase / all;
  }
  return results;
}

std::vector<Param*> biases_of(const std::vector<Weight*>& weights, Layer& model) {
  const Inventory inventory = inventory_of(model);
  std::vector<Param*> biases;
  for (const Weight* weight : weights) {
    // features.0.weight and features.0.bias; in_proj_weight and in_proj_bias
    std::string name = weight->name();
    name.replace(name.rfind("weight"), std::string("weight").size(), "bias");
    const auto at =
        std::find_if(inventory.params.begin(), inventory.params.end(), [&](const Param* p) { return p->name == name; });
    biases.push_back(at == inventory.params.end() ? nullptr : *at);
  }
  return biases;
}

}  // namespace ab
