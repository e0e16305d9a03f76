#pragma once
// SPDX-License-Identifier: MIT
//
// Random numbers drawn one after the other, for decisions whose number is not known beforehand. The sequence
// is a pure function of (seed, stream, sample): every sample owns 256 Philox counters of a stream.

#include <cmath>
#include <cstdint>

#include "engine/core/random.h"

namespace ab {

inline constexpr int kMostRepeats = 1 << 10;

/// Where the random numbers of one image come from.
struct SampleKey {
  std::uint64_t seed = 0;
  std::int64_t epoch = 0, sample = 0;
  std::int64_t repetition =
      0;  ///< how often the epoch has shown the sample before, below kMostRepeats (Sampler::repeats)

  /// A generator of this epoch, and the number that the sample has there; `stream` is a multiple of 2^32.
  Philox random(std::uint64_t stream) const { return {seed, stream + static_cast<std::uint64_t>(epoch)}; }
  std::uint64_t counter() const { return static_cast<std::uint64_t>(sample + (repetition << 40)); }
};

class Draws {
 public:
  Draws(const SampleKey& key, std::uint64_t stream) : random_(key.random(stream)), next_(key.counter() << 8) {}
  Draws(std::uint64_t seed, std::uint64_t stream, std::int64_t sample)
      : random_{seed, stream}, next_(static_cast<std::uint64_t>(sample) << 8) {}

  /// Uniform in [low, high).
  double uniform(double low = 0, double high = 1) { return low + (high - low) * 0x1p-32 * random_.bits(next_++); }
  /// Uniform in 0 … n-1.
  int below(int n) { return static_cast<int>(random_.below(next_++, static_cast<std::uint64_t>(n))); }
  bool coin() { return (random_.bits(next_++) >> 31) != 0; }
  double normal() { return random_.normal(next_++); }
  Philox::Block block() { return random_.block(next_++); }

  /// Gamma(shape, 1), shape > 0: Marsaglia and Tsang, "A simple method for generating gamma variables", 2000.
  double gamma(double shape) {
    // Below 1: Gamma(shape) = Gamma(shape + 1) · U^(1/shape).
    if (shape < 1) {
      const double power = std::pow(1 - uniform(), 1 / shape);
      return gamma(shape + 1) * power;
    }
    const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    for (;;) {
      const double x = normal(), v = std::pow(1 + c * x, 3);
      if (v > 0 && std::log(1 - uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
    }
  }
  /// Beta(a, b), a and b > 0.
  double beta(double a, double b) {
    const double x = gamma(a), y = gamma(b);
    // Tiny parameters make both vanish; the distribution is then two points, 0 and 1.
    return x + y > 0 ? x / (x + y) : static_cast<double>(uniform() < a / (a + b));
  }

 private:
  Philox random_;
  std::uint64_t next_;
};

}  // namespace ab
