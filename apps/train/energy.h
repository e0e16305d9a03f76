#pragma once
// SPDX-License-Identifier: MIT
//
// The energy that the processors of this machine take, memory not included, by Linux's powercap, whose counters root alone may
// read on most machines. All that runs there counts.

#include <filesystem>
#include <string>
#include <vector>

namespace ab {

class EnergyMeter {
 public:
  /// Counts from now on.
  explicit EnergyMeter(const std::string& powercap = "/sys/class/powercap");
  /// Joules since it began; NaN where nothing tells. Counters begin anew after some minutes, so look often.
  double look();
  /// "powercap"; "none" where there is none, "refused" where its counters may not be read.
  const std::string& source() const { return source_; }

 private:
  struct Counter {
    std::filesystem::path file;
    double last, range;  // microjoules
  };

  std::string source_ = "none";
  std::vector<Counter> counters_;
  double joules_ = 0;
};

}  // namespace ab
