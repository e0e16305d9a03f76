#pragma once
// SPDX-License-Identifier: MIT
//
// XXH3 (https://xxhash.com): hashes that run as fast as memory delivers, against damage and drift, not
// against an adversary.

#include <cstddef>
#include <cstdint>
#include <string>

namespace ab {

/// XXH3-64; `seed` chains the hash of what came before.
std::uint64_t hash64(const void* bytes, std::size_t count, std::uint64_t seed = 0);

/// XXH3-128 as 32 lower-case hexadecimal digits.
std::string hash128(const void* bytes, std::size_t count);

}  // namespace ab
