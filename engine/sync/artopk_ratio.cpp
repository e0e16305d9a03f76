// SPDX-License-Identifier: MIT
#include "engine/sync/artopk_ratio.h"

#include <algorithm>
#include <cmath>

#include "engine/kernels/reduce.h"
#include "engine/kernels/select.h"
#include "engine/kernels/sparse.h"
#include "engine/sync/sparse_average.h"

namespace ab {

std::vector<std::int64_t> adaptive_elements(double least, double most, std::int64_t n) {
  constexpr double kADecade = 4;
  AB_ASSERT(0 < least && least <= most && most <= 1);
  const auto parts = static_cast<int>(std::ceil(kADecade * std::log10(most / least) - 1e-9));
  std::vector<std::int64_t> elements{elements_of_density(most, n)};
  for (int i = 1; i <= parts; ++i) {
    const double ratio = i == parts ? least : most * std::pow(least / most, static_cast<double>(i) / parts);
    if (const std::int64_t k = elements_of_density(ratio, n); k < elements.back()) elements.push_back(k);
  }
  return elements;
}

std::vector<double> gains_of(const Tensor& x, const std::vector<std::int64_t>& elements) {
  const FiniteCheck unmarked(x.device());
  const double whole = sum_of_squares(x);
  std::vector<double> gains;
  Tensor from = x;
  for (const std::int64_t k : elements) {
    if (k < from.numel()) {
      const Tensor bytes({4 * k}, DType::uint8, x.device()), values({k}, DType::float32, x.device());
      auto* const indices = reinterpret_cast<std::uint32_t*>(bytes.data<std::uint8_t>());
      Selector(from.numel(), x.device()).exact(from, k, indices);
      take_values(from, {k, values.data<float>(), indices}, k, unmarked);
      from = values;
    }
    gains.push_back(sum_of_squares(from) / whole);
  }
  return gains;
}

std::optional<std::size_t> best_trial(std::span<const RatioTrial> trials) {
  constexpr double kOfTime = 0.6, kOfGain = 0.4;
  const auto usable = [](const RatioTrial& t) {
    return std::isfinite(t.seconds) && t.gain > 0 && std::isfinite(t.gain);
  };
  if (trials.empty() || !std::ranges::all_of(trials, usable)) return {};
  const auto beats = [](const RatioTrial& a, const RatioTrial& b) {
    return a.seconds <= b.seconds && a.gain >= b.gain && (a.seconds < b.seconds || a.gain > b.gain);
  };
  std::vector<std::size_t> front;
  for (std::size_t i = 0; i < trials.size(); ++i)
    if (std::ranges::none_of(trials, [&](const RatioTrial& other) { return beats(other, trials[i]); }))
      front.push_back(i);
  /// From the ideal to the worst of the front, as 0 to 1.
  const auto scaled = [&](const auto& aim) {
    const auto [least, most] = std::ranges::minmax(front, {}, aim);
    return [aim, low = aim(least), width = aim(most) - aim(least)](std::size_t i) {
      return width > 0 ? (aim(i) - low) / width : 0;
    };
  };
  const auto time = scaled([&](std::size_t i) { return trials[i].seconds; });
  const auto loss = scaled([&](std::size_t i) { return 1 / trials[i].gain; });
  return *std::ranges::min_element(front, {},
                                   [&](std::size_t i) { return std::max(kOfTime * time(i), kOfGain * loss(i)); });
}

}  // namespace ab
