#pragma once
// SPDX-License-Identifier: MIT
//
// Random numbers drawn one after the other, for decisions whose number is not known beforehand. The sequence
// is a pure function of (seed, stream, sample): every sample owns 256 Philox counters of a stream.

#include "engine/core/random.h"

namespace ab {

class Draws {
 public:
  Draws(std::uint64_t seed, std::uint64_t stream, std::int64_t sample)
      : random_{seed, stream}, next_(static_cast<std::uint64_t>(sample) << 8) {}

  /// Uniform in [low, high).
  double uniform(double low = 0, double high = 1) { return low + (high - low) * 0x1p-32 * random_.bits(next_++); }
  /// Uniform in 0 … n-1.
  int below(int n) { return static_cast<int>(random_.below(next_++, static_cast<std::uint64_t>(n))); }
  bool coin() { return (random_.bits(next_++) >> 31) != 0; }
  double normal() { return random_.normal(next_++); }
  /// Gamma(shape, 1), shape > 0: Marsaglia and Tsang, "A simple method for generating gamma variables", 2000.
  double gamma(double shape);
  /// Beta(a, b), a and b > 0.
  double beta(double a, double b);

 private:
  Philox random_;
  std::uint64_t next_;
};

}  // namespace ab
