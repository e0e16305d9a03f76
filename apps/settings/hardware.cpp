// SPDX-License-Identifier: MIT
#include "apps/settings/hardware.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <limits>
#include <optional>
#include <vector>

#include "engine/comm/launcher.h"
#include "engine/core/check.h"
#include "engine/device/device.h"
#include "engine/kernels/elementwise.h"
#include "engine/ops/linear.h"

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

/// The fastest of several products; the first one makes plans.
Peak measured_peak(Precision precision) {
  constexpr std::int64_t kSide = 768;
  constexpr double kSeconds = 0.03;
  std::vector<float> values(kSide * kSide);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 89) / 64 - 1;
  const Tensor a = cast(Tensor::from(values, {kSide, kSide}), activation_type(precision));
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  double least = std::numeric_limits<double>::infinity();
  const double start = now();
  for (int i = 0; i < 3 || now() - start < kSeconds; ++i) {
    const double began = now();
    linear_forward(a, a, {});
    least = std::min(least, now() - began);
  }
  return {2.0 * kSide * kSide * kSide / least, "measured"};
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

Peak peak_of_gpu(const std::string& name, Precision precision) {
  struct Known {
    const char* word;
    double fp32, tf32, in_16_bits;
  };
  constexpr Known kKnown[] = {{"H100 PCIe", 51e12, 378e12, 756e12},
                              {"NVL", 60e12, 418e12, 835e12},
                              {"H100", 67e12, 494e12, 989e12},
                              {"H200", 67e12, 494e12, 989e12},
                              {"A100", 19.5e12, 156e12, 312e12}};
  for (const auto& [word, fp32, tf32, in_16_bits] : kKnown) {
    if (name.find(word) == std::string::npos || name.find("MIG") != std::string::npos) continue;
    return {precision == Precision::fp32 ? fp32 : precision == Precision::tf32 ? tf32 : in_16_bits, word};
  }
  return {};
}

Peak peak_of(Device device, Precision precision) {
  return device.kind == DeviceKind::cpu ? measured_peak(precision)
                                        : peak_of_gpu(cuda_device_name(device.index), precision);
}

Wiring run_wiring(const TrainConfig& config) { return {config.all_reduce, parse_network(config.network)}; }

Wiring planned_wiring(const TrainConfig& config) {
  Wiring wiring = run_wiring(config);
  AB_CHECK(wiring.network.parts.size() <= 1, "a plan takes one network, and --network has {}",
           wiring.network.parts.size());
  if (config.device != "cpu" && config.transport != "threads" && config.transport != "mpi")
    wiring.all_reduce = AllReduce::library;
  return wiring;
}

}  // namespace ab
