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

/// Prices of a budget: a share of all weights and of all operations.
class Prices {
 public:
  explicit Prices(std::span<const CutWeight> weights) {
    for (const CutWeight& w : weights) {
      const double elements = static_cast<double>(w.out * w.in);
      weights_ += elements, operations_ += elements * w.positions;
    }
  }
  /// Of so many elements of w.
  double of(const CutWeight& w, std::int64_t elements) const {
    return static_cast<double>(elements) * 0.5 * (1 / weights_ + w.positions / operations_);
  }
  double of_rank(const CutWeight& w, std::int64_t r) const {
    return of(w, is_dense(w, r) ? w.out * w.in : r * (w.out + w.in));
  }

 private:
  double weights_ = 0, operations_ = 0;
};

/// The best r where a share of the budget is worth `mu` of the loss.
std::int64_t best_rank(const CutWeight& w, const Prices& prices, double mu, const RankRounding& rounding) {
  const double price = mu * prices.of(w, w.out + w.in);
  const auto kept = std::find_if(w.increases.begin(), w.increases.end(), [&](double v) { return v < price; });
  const std::int64_t r = r_or_dense(w, rounding.apply(kept - w.increases.begin(), w.n()));
  if (is_dense(w, r)) return w.n();
  const double lost = std::accumulate(w.increases.begin() + r, w.increases.end(), 0.0);
  return lost + mu * prices.of_rank(w, r) > mu * prices.of_rank(w, w.n()) ? w.n() : r;
}

}  // namespace

std::int64_t RankRounding::apply(std::int64_t r, std::int64_t n) const {
  r = std::max<std::int64_t>(r, 1);
  r = (r + multiple - 1) / multiple * multiple;
  return std::min(r, n);
}

std::vector<std::int64_t> ranks_by_share(std::span<const CutWeight> weights, double share,
                                         const RankRounding& rounding) {
  std::vector<std::int64_t> ranks;
  for (const CutWeight& w : weights) {
    const double total = std::accumulate(w.increases.begin(), w.increases.end(), 0.0);
    double held = 0;
    std::int64_t r = 0;
    while (r < w.n() && held < share * total) held += w.increases[static_cast<std::size_t>(r++)];
    ranks.push_back(r_or_dense(w, rounding.apply(std::max({r, std::int64_t{8}, w.n() / 16}), w.n())));
  }
  return ranks;
}

std::vector<std::int64_t> ranks_by_budget(std::span<const CutWeight> weights, double budget,
                                          const RankRounding& rounding) {
  const Prices prices(weights);
  const auto ranks_at = [&](double mu) {
    std::vector<std::int64_t> ranks;
    for (const CutWeight& w : weights) ranks.push_back(best_rank(w, prices, mu, rounding));
    return ranks;
  };
  const auto price_at = [&](double mu) {
    const std::vector<std::int64_t> ranks = ranks_at(mu);
    double total = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) total += prices.of_rank(weights[i], ranks[i]);
    return total;
  };
  // The price falls as mu rises. Between these two lies every change, for losses in any sensible unit.
  double low = 1e-30, high = 1e30;
  budget *= 1 + 1e-12;  // prices are rounded, and all of it shall be allowed
  if (price_at(low) <= budget) return ranks_at(low);
  for (int i = 0; i < 200; ++i) {
    const double middle = std::sqrt(low * high);
    (price_at(middle) <= budget ? high : low) = middle;
  }
  return ranks_at(high);
}

}  // namespace ab
