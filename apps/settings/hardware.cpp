// SPDX-License-Identifier: MIT
#include "apps/settings/hardware.h"

#include <charconv>
#include <optional>

#include "engine/comm/launcher.h"
#include "engine/core/check.h"
#include "engine/device/device.h"

namespace ab {
namespace {

constexpr int kInTurn = -1;

/// The number of the GPU; nothing for the CPU.
std::optional<int> gpu_of(const std::string& word) {
  const std::string prefix = "cuda:";
  if (word == "cpu") return std::nullopt;
  if (word == "cuda") return kInTurn;
  int index = -1;
  const char* const end = word.data() + word.size();
  const bool has_index =
      word.starts_with(prefix) && std::from_chars(word.data() + prefix.size(), end, index).ptr == end && index >= 0;
  AB_CHECK(has_index, "--device cannot be '{}'; allowed is cpu, cuda, or cuda:N for GPU N", word);
  return index;
}

}  // namespace

void check_device_word(const std::string& word) { gpu_of(word); }

Device choose_device(const std::string& word) {
  const std::optional<int> gpu = gpu_of(word);
  if (!gpu) return {};
  const int index = *gpu != kInTurn ? *gpu : local_rank() % std::max(1, cuda_device_count());
  check_cuda_device(index);
  return {DeviceKind::cuda, index};
}

Wiring run_wiring(const TrainConfig& config) { return {config.all_reduce, parse_network(config.network)}; }

Wiring planned_wiring(const TrainConfig& config) {
  Wiring wiring = run_wiring(config);
  AB_CHECK(wiring.network.parts.size() <= 1, "a plan takes one network, and --network has {}",
           wiring.network.parts.size());
  if (config.device != "cpu" && config.transport != "threads") wiring.all_reduce = AllReduce::library;
  return wiring;
}

}  // namespace ab
