// SPDX-License-Identifier: MIT
#include "apps/train/energy.h"

#include <fstream>
#include <limits>

#include "engine/core/machine.h"

namespace ab {

namespace fs = std::filesystem;

EnergyMeter::EnergyMeter(const std::string& powercap) {
  std::error_code ignored;
  for (const fs::directory_entry& zone : fs::directory_iterator(powercap, ignored)) {
    std::string name;  // zones of other names are parts of a package, or hold it
    std::ifstream(zone.path() / "name") >> name;
    if (!name.starts_with("package")) continue;
    const auto now = number_in(zone.path() / "energy_uj"), range = number_in(zone.path() / "max_energy_range_uj");
    source_ = now && range && source_ != "refused" ? "powercap" : "refused";
    counters_.push_back(
        {zone.path() / "energy_uj", static_cast<double>(now.value_or(0)), static_cast<double>(range.value_or(0))});
  }
}

double EnergyMeter::look() {
  for (Counter& counter : counters_) {
    const auto number = number_in(counter.file);
    if (!number) source_ = "refused";
    const auto now = static_cast<double>(number.value_or(0));
    joules_ += 1e-6 * (now - counter.last + (now < counter.last ? counter.range : 0));
    counter.last = now;
  }
  return source_ == "powercap" ? joules_ : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace ab
