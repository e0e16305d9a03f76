// SPDX-License-Identifier: MIT
#include "engine/core/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace ab {

std::uint64_t hash64(const void* bytes, std::size_t count, std::uint64_t seed) {
  return XXH3_64bits_withSeed(bytes, count, seed);
}

std::string hash128(const void* bytes, std::size_t count) {
  const XXH128_hash_t hash = XXH3_128bits(bytes, count);
  return fmt::format("{:016x}{:016x}", std::uint64_t{hash.high64}, std::uint64_t{hash.low64});
}

}  // namespace ab
