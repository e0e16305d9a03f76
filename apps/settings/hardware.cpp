// SPDX-License-Identifier: MIT
#include "apps/settings/hardware.h"

#include <charconv>
#include <optional>

#include "engine/comm/launcher.h"
#include "engine/core/check.h"
#include "engine/device/device.h"

namespace ab {
namespace {

struct DeviceWord {
  DeviceKind kind = DeviceKind::cpu;
  std::optional<int> index;
};

DeviceWord parse(const std::string& word) {
  const std::string prefix = "cuda:";
  if (word == "cpu") return {};
  if (word == "cuda") return {DeviceKind::cuda, std::nullopt};
  int index = -1;
  const char* const end = word.data() + word.size();
  const bool has_index =
      word.starts_with(prefix) && std::from_chars(word.data() + prefix.size(), end, index).ptr == end && index >= 0;
  AB_CHECK(has_index, "--device cannot be '{}'; allowed is cpu, cuda, or cuda:N for GPU N", word);
  return {DeviceKind::cuda, index};
}

}  // namespace

void check_device_word(const std::string& word) { (void)parse(word); }

Device choose_device(const std::string& word) {
  const DeviceWord wanted = parse(word);
  if (wanted.kind == DeviceKind::cpu) return {};
  const int in_turn = local_rank() % std::max(1, cuda_device_count());
  const int index = wanted.index.value_or(in_turn);
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
