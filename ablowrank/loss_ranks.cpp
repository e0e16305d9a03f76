// SPDX-License-Identifier: MIT
#include "ablowrank/loss_ranks.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ab {
namespace {

/// r, or that of the weight as it is where factors of rank r would not be smaller.
std::int64_t r_or_whole(const CutWeight& w, std::int64_t r) {
  return r < w.whole() && r * (w.rows + w.columns) < w.rows * w.columns ? r : w.whole();
}

/// The sensitivity of each direction that the weight has, as a share of that of all.
std::vector<double> shares_of(const CutWeight& w) {
  std::vector<double> shares(w.increases.begin(), w.increases.begin() + w.whole());
  const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share = all > 0 ? share / all : 0;
  return shares;
}

/// The ranks of all weights at a price: `mu` for a cost of 1, which is that of all weights dense.
class RanksAtPrices {
 public:
  /// No r of factors is below max(least, n·least_share).
  RanksAtPrices(std::span<const CutWeight> weights, const RankRounding& rounding, std::int64_t least,
                double least_share)
      : weights_(weights), rounding_(rounding), least_(least), least_share_(least_share) {
    for (const CutWeight& w : weights) {
      const double elements = static_cast<double>(w.rows * w.columns);
      elements_ += elements, operations_ += elements * w.positions;
      shares_.push_back(shares_of(w));
    }
  }

  std::vector<std::int64_t> at(double mu) const {
    std::vector<std::int64_t> ranks;
    for (std::size_t i = 0; i < weights_.size(); ++i) ranks.push_back(best_rank(i, mu));
    return ranks;
  }

  double cost(const std::vector<std::int64_t>& ranks) const {
    double total = 0;
    for (std::size_t i = 0; i < weights_.size(); ++i) total += cost_of_rank(weights_[i], ranks[i]);
    return total;
  }

  double lost(const std::vector<std::int64_t>& ranks) const {
    double total = 0;
    for (std::size_t i = 0; i < weights_.size(); ++i) total += lost_by_rank(i, ranks[i]);
    return total;
  }

 private:
  double cost_of_elements(const CutWeight& w, std::int64_t elements) const {
    return static_cast<double>(elements) * 0.5 * (1 / elements_ + w.positions / operations_);
  }
  double cost_of_rank(const CutWeight& w, std::int64_t r) const {
    return cost_of_elements(w, std::min(r * (w.rows + w.columns), w.rows * w.columns));
  }
  double lost_by_rank(std::size_t weight, std::int64_t r) const {
    const std::vector<double>& shares = shares_[weight];
    return std::accumulate(shares.begin() + r, shares.end(), 0.0);
  }

  std::int64_t best_rank(std::size_t weight, double mu) const {
    const CutWeight& w = weights_[weight];
    const std::vector<double>& shares = shares_[weight];
    const double price = mu * cost_of_elements(w, w.rows + w.columns);
    const auto kept = std::find_if(shares.begin(), shares.end(), [&](double share) { return share < price; });
    const std::int64_t least = std::max(least_, static_cast<std::int64_t>(least_share_ * static_cast<double>(w.n())));
    const std::int64_t r = r_or_whole(w, rounding_.apply(std::max(kept - shares.begin(), least), w.n()));
    const double saved = mu * (cost_of_rank(w, w.whole()) - cost_of_rank(w, r));
    return lost_by_rank(weight, r) > saved ? w.whole() : r;
  }

  std::span<const CutWeight> weights_;
  std::vector<std::vector<double>> shares_;
  RankRounding rounding_;
  std::int64_t least_;
  double least_share_;
  double elements_ = 0, operations_ = 0;
};

/// Two neighbouring prices: up to `cheap` it is false, from `dear` on true. Shares and costs are at most 1, so prices
/// that matter are well inside these bounds.
struct Between {
  double cheap = 1e-30, dear = 1e30;
};
template <typename Predicate> Between bisect(const Predicate& is_dear) {
  Between mu;
  for (int i = 0; i < 200; ++i) {
    const double middle = std::sqrt(mu.cheap * mu.dear);
    (is_dear(middle) ? mu.dear : mu.cheap) = middle;
  }
  return mu;
}

}  // namespace

std::vector<std::int64_t> ranks_by_share(std::span<const CutWeight> weights, double share,
                                         const RankRounding& rounding) {
  const RanksAtPrices ranks(weights, rounding, /*least=*/8, /*least_share=*/1.0 / 16);
  const double allowed = (1 - share) * static_cast<double>(weights.size());
  return ranks.at(bisect([&](double mu) { return ranks.lost(ranks.at(mu)) > allowed; }).cheap);
}

std::vector<std::int64_t> ranks_by_budget(std::span<const CutWeight> weights, double budget,
                                          const RankRounding& rounding) {
  const RanksAtPrices ranks(weights, rounding, /*least=*/1, /*least_share=*/0);
  budget *= 1 + 1e-12;  // prices are rounded, and all of it shall be allowed
  return ranks.at(bisect([&](double mu) { return ranks.cost(ranks.at(mu)) <= budget; }).dear);
}

}  // namespace ab
