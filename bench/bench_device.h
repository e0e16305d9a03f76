#pragma once
// SPDX-License-Identifier: MIT
//
// --device of the programs that time training steps.

#include <cstdio>
#include <cstdlib>
#include <string>

#include "engine/backend/cuda/device.h"
#include "engine/core/check.h"
#include "engine/core/dtype.h"

namespace ab {

/// The CPU, or for "cuda" the first GPU; without one the program ends and says why.
inline Device bench_device(const std::string& word) {
  if (word == "cpu") return {};
  if (const std::string reason = cuda_unavailable_reason(); !reason.empty()) {
    std::fprintf(stderr, "%s\n", reason.c_str());
    std::exit(static_cast<int>(ErrorKind::communication));
  }
  return {DeviceKind::cuda, 0};
}

}  // namespace ab
