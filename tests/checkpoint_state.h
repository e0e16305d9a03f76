#pragma once
// SPDX-License-Identifier: MIT
//
// For tests of checkpoints: what a rank saves at a step, and whether it came back.

#include <gtest/gtest.h>

#include <cstring>

#include "engine/io/state_dict.h"
#include "tests/tensor_values.h"

namespace ab::test {

/// Weights that all ranks share, some that every other rank has, and what is its own; all follow from the
/// step.
inline StateDict state_of(int rank, std::int64_t step) {
  StateDict state;
  state.put("model.conv.weight", normal_values({8, 3, 3, 3}, static_cast<std::uint64_t>(step)));
  state.put("model.group", normal_values({5, 2}, static_cast<std::uint64_t>(100 + rank % 2)));
  state.put("norm.running_mean", normal_values({8}, static_cast<std::uint64_t>(1000 + rank)));
  state.put("step", step);
  state.put("sampler.rank", std::int64_t{rank});
  return state;
}

inline testing::AssertionResult same_bits(const StateDict& a, const StateDict& b) {
  if (a.values() != b.values()) return testing::AssertionFailure() << "other values";
  if (a.tensors().size() != b.tensors().size()) return testing::AssertionFailure() << "other tensors";
  for (const auto& [name, tensor] : a.tensors()) {
    if (!b.has(name)) return testing::AssertionFailure() << name << " is missing";
    const Tensor other = b.tensor(name);
    if (other.dtype() != tensor.dtype() || other.shape() != tensor.shape() ||
        std::memcmp(other.raw(), tensor.raw(), tensor.bytes()) != 0)
      return testing::AssertionFailure() << name << " differs";
  }
  return testing::AssertionSuccess();
}

}  // namespace ab::test
