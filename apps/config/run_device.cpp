// SPDX-License-Identifier: MIT
#include "apps/config/run_device.h"

#include <charconv>
#include <optional>

#include "engine/comm/launcher.h"
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

}  // namespace ab
