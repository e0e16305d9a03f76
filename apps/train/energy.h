#pragma once
// SPDX-License-Identifier: MIT
//
// The energy that a run takes: of the processors of this machine, memory not included, by Linux's powercap, whose counters root
// alone may read on most machines, and of which all that runs there counts; or of a GPU, by NVIDIA's management library (NVML),
// which is loaded where there is one (GPUs from Volta on).

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ab {

class EnergyMeter {
 public:
  /// Of the processors, from now on.
  explicit EnergyMeter(const std::string& powercap = "/sys/class/powercap");
  /// Of the GPU at that address of the PCI bus ("0000:3B:00.0").
  static EnergyMeter of_gpu(const std::string& bus_address, const char* library = "libnvidia-ml.so.1");

  /// Joules since it began; NaN where nothing tells. Counters of processors begin anew after some minutes, so look often.
  double look();
  /// "powercap" or "nvml"; "none" where there is none, "refused" where its counters may not be read.
  const std::string& source() const { return source_; }

 private:
  struct Counter {
    std::function<std::optional<std::int64_t>()> now;  // microjoules
    double last, range;                                // of what `now` told, and from which number it begins anew
  };
  void add(std::function<std::optional<std::int64_t>()> now, std::optional<std::int64_t> range, const char* source);

  std::string source_ = "none";
  std::vector<Counter> counters_;
  double joules_ = 0;
};

}  // namespace ab
