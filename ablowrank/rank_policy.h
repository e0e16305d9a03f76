#pragma once
// SPDX-License-Identifier: MIT
//
// How many singular directions of a weight are kept.

#include <cstdint>
#include <span>

namespace ab {

struct RankPolicy {
  enum class Kind {
    sigma_cutoff,  ///< all sigma_i > cutoff · sigma_1 (the paper)
    ratio,         ///< ratio · n, rounded to the nearest
  };
  Kind kind = Kind::ratio;
  double cutoff = 0.15;       ///< in [0, 1)
  double ratio = 0.5;         ///< in (0, 1]
  std::int64_t multiple = 1;  ///< the result is rounded up to a multiple of this

  bool operator==(const RankPolicy&) const = default;
  /// r for a weight with singular values `sigma` (descending, n of them): at least 1, also for a dead layer
  /// whose sigma are all zero, and at most n.
  std::int64_t choose(std::span<const double> sigma) const;
};

}  // namespace ab
