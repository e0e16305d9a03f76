#pragma once
// SPDX-License-Identifier: MIT
//
// --device and --cuda-graph of the programs that time training steps.

#include <cstdio>
#include <cstdlib>
#include <string>

#include "apps/train/train_step.h"
#include "engine/core/check.h"
#include "engine/core/dtype.h"
#include "engine/device/device.h"

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

/// For auto, graphs on a GPU and none on the CPU, which has none.
inline GraphUse bench_graph_use(const std::string& word, Device device) {
  const bool on_gpu = device.kind == DeviceKind::cuda;
  if (word == "on" && !on_gpu) {
    std::fprintf(stderr, "--cuda-graph on: only a GPU can run CUDA graphs; give --device cuda\n");
    std::exit(static_cast<int>(ErrorKind::config));
  }
  return word == "off" || !on_gpu ? GraphUse::off : GraphUse::required;
}

}  // namespace ab
