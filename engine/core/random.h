#pragma once
// SPDX-License-Identifier: MIT
//
// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011). A number is a pure function of (seed, stream, index), so it is the same on a CPU and a GPU, for
// any number of threads, and resuming a run needs no generator state beyond those three.

#include <cmath>
#include <cstdint>
#include <string_view>

#include "engine/core/dtype.h"

namespace ab {

struct Philox {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;  ///< separates uses of one seed: initialisation, shuffling, dropout of layer 7 …

  struct Block {
    std::uint32_t v[4];
  };

  /// Four independent 32-bit numbers.
  AB_HD Block block(std::uint64_t index) const {
    std::uint32_t c0 = static_cast<std::uint32_t>(index), c1 = static_cast<std::uint32_t>(index >> 32);
    std::uint32_t c2 = static_cast<std::uint32_t>(stream), c3 = static_cast<std::uint32_t>(stream >> 32);
    std::uint32_t k0 = static_cast<std::uint32_t>(seed), k1 = static_cast<std::uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c0, p1 = std::uint64_t{0xCD9E8D57u} * c2;
      c0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
      c1 = static_cast<std::uint32_t>(p1);
      c2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c3 = static_cast<std::uint32_t>(p0);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
  }

  AB_HD std::uint32_t bits(std::uint64_t index) const { return block(index).v[0]; }
  /// Uniform in [0, 1), 24 bits.
  AB_HD float uniform(std::uint64_t index) const { return static_cast<float>(bits(index) >> 8) * 0x1p-24f; }
  /// Standard normal (Box–Muller).
  AB_HD float normal(std::uint64_t index) const {
    const Block b = block(index);
    const float u = (static_cast<float>(b.v[0] >> 8) + 0.5f) * 0x1p-24f;
    const float angle = 6.28318530718f * (static_cast<float>(b.v[1] >> 8) * 0x1p-24f);
    return sqrtf(-2.0f * logf(u)) * cosf(angle);
  }
  /// Uniform integer in [0, n), n > 0. The bias of the multiply-shift is below n / 2^64.
  AB_HD std::uint64_t below(std::uint64_t index, std::uint64_t n) const {
    const Block b = block(index);
    const std::uint64_t high = b.v[0], low = b.v[1];
    return n >> 32 ? ((high << 32) | low) % n : (high * n + ((low * n) >> 32)) >> 32;
  }
};

/// A stream for everything that has a name: FNV-1a, 64 bits.
constexpr std::uint64_t stream_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return hash;
}

}  // namespace ab
