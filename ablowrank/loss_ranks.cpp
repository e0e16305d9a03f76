// SPDX-License-Identifier: MIT
#include "ablowrank/loss_ranks.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ab {
namespace {

/// r, or n where factors of that rank would not be smaller.
std::int64_t r_or_dense(const CutWeight& w, std::int64_t r) { return r * (w.out + w.in) < w.out * w.in ? r : w.n(); }

bool is_dense(const CutWeight& w, std::int64_t r) { return r_or_dense(w, r) == w.n(); }

/// The ranks of all weights where a share of the price of all is worth `mu` of the loss, for every mu.
class RanksAtPrices {
 public:
  /// Of factors, no r is below max(least, n·least_share).
  RanksAtPrices(std::span<const CutWeight> weights, const RankRounding& rounding, std::int64_t least,
                double least_share)
      : weights_(weights), rounding_(rounding), least_(least), least_share_(least_share) {
    for (const CutWeight& w : weights) {
      const double elements = static_cast<double>(w.out * w.in);
      elements_ += elements, operations_ += elements * w.positions;
    }
  }

  std::vector<std::int64_t> at(double mu) const {
    std::vector<std::int64_t> ranks;
    for (const CutWeight& w : weights_) ranks.push_back(best_rank(w, mu));
    return ranks;
  }

  /// A share of what all weights cost dense.
  double price(const std::vector<std::int64_t>& ranks) const {
    double total = 0;
    for (std::size_t i = 0; i < weights_.size(); ++i) total += price_of_rank(weights_[i], ranks[i]);
    return total;
  }

  /// So much does the loss rise.
  double rise(const std::vector<std::int64_t>& ranks) const {
    double total = 0;
    for (std::size_t i = 0; i < weights_.size(); ++i) total += rise_of_rank(weights_[i], ranks[i]);
    return total;
  }

 private:
  double price_of_elements(const CutWeight& w, std::int64_t elements) const {
    return static_cast<double>(elements) * 0.5 * (1 / elements_ + w.positions / operations_);
  }
  double price_of_rank(const CutWeight& w, std::int64_t r) const {
    return price_of_elements(w, is_dense(w, r) ? w.out * w.in : r * (w.out + w.in));
  }
  static double rise_of_rank(const CutWeight& w, std::int64_t r) {
    return is_dense(w, r) ? 0 : std::accumulate(w.increases.begin() + r, w.increases.end(), 0.0);
  }

  std::int64_t best_rank(const CutWeight& w, double mu) const {
    const double price = mu * price_of_elements(w, w.out + w.in);
    const auto kept = std::find_if(w.increases.begin(), w.increases.end(), [&](double v) { return v < price; });
    const auto share = static_cast<std::int64_t>(least_share_ * static_cast<double>(w.n()));
    const std::int64_t r = r_or_dense(w, rounding_.apply(std::max({kept - w.increases.begin(), least_, share}), w.n()));
    const double gained = mu * (price_of_rank(w, w.n()) - price_of_rank(w, r));
    return rise_of_rank(w, r) > gained ? w.n() : r;
  }

  std::span<const CutWeight> weights_;
  RankRounding rounding_;
  std::int64_t least_;
  double least_share_;
  double elements_ = 0, operations_ = 0;
};

/// Two neighbouring prices, for losses in any sensible unit: below `dear` it is false of all prices, above it true.
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

std::int64_t RankRounding::apply(std::int64_t r, std::int64_t n) const {
  r = std::max<std::int64_t>(r, 1);
  r = (r + multiple - 1) / multiple * multiple;
  return std::min(r, n);
}

std::vector<std::int64_t> ranks_by_share(std::span<const CutWeight> weights, double share,
                                         const RankRounding& rounding) {
  const RanksAtPrices ranks(weights, rounding, /*least=*/8, /*least_share=*/1.0 / 16);
  double worth = 0;
  for (const CutWeight& w : weights) worth += std::accumulate(w.increases.begin(), w.increases.end(), 0.0);
  const double allowed = (1 - share) * worth;
  const Between mu = bisect([&](double price) { return ranks.rise(ranks.at(price)) > allowed; });
  return ranks.at(mu.cheap);
}

std::vector<std::int64_t> ranks_by_budget(std::span<const CutWeight> weights, double budget,
                                          const RankRounding& rounding) {
  const RanksAtPrices ranks(weights, rounding, /*least=*/1, /*least_share=*/0);
  budget *= 1 + 1e-12;  // prices are rounded, and all of it shall be allowed
  const Between mu = bisect([&](double price) { return ranks.price(ranks.at(price)) <= budget; });
  return ranks.at(mu.dear);
}

}  // namespace ab
