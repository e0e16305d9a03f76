#pragma once
// SPDX-License-Identifier: MIT
//
// A built-in data set for machines without CIFAR: ten classes of procedurally drawn shapes with nuisance
// variation, deterministic in the seed, written once in CIFAR-10's binary format and read back by its loader.

#include <string>

#include "data/dataset.h"

namespace ab {

struct SyntheticOptions {
  std::int64_t train_count = 50000;
  std::int64_t test_count = 10000;
  std::uint64_t seed = 0;
};

/// Returns the folder that holds the set; draws and writes it first when it is not there yet (atomically:
/// several processes may call this at once). `cache_root` empty: $XDG_CACHE_HOME/abtrain or ~/.cache/abtrain.
std::string ensure_synthetic_cifar10(const SyntheticOptions& options, const std::string& cache_root = {});

}  // namespace ab
