// SPDX-License-Identifier: MIT
#include "apps/train/energy.h"

#include <dlfcn.h>

#include <fstream>
#include <limits>
#include <utility>

#include "engine/core/machine.h"

namespace ab {

namespace fs = std::filesystem;

void EnergyMeter::add(std::function<std::optional<std::int64_t>()> now, std::optional<std::int64_t> range,
                      const char* source) {
  const std::optional<std::int64_t> first = now();
  source_ = first && range && source_ != "refused" ? source : "refused";
  counters_.push_back({std::move(now), static_cast<double>(first.value_or(0)), static_cast<double>(range.value_or(0))});
}

EnergyMeter::EnergyMeter(const std::string& powercap) {
  std::error_code ignored;
  for (const fs::directory_entry& zone : fs::directory_iterator(powercap, ignored)) {
    std::string name;  // zones of other names are parts of a package, or hold it
    std::ifstream(zone.path() / "name") >> name;
    if (!name.starts_with("package")) continue;
    add([file = zone.path() / "energy_uj"] { return number_in(file); }, number_in(zone.path() / "max_energy_range_uj"),
        "powercap");
  }
}

EnergyMeter EnergyMeter::of_gpu(const std::string& bus_address, const char* library) {
  EnergyMeter meter("");
  void* const nvml = ::dlopen(library, RTLD_NOW | RTLD_LOCAL);  // stays loaded
  const auto find = [&]<class F>(const char* name, F*& function) {
    function = nvml ? reinterpret_cast<F*>(::dlsym(nvml, name)) : nullptr;
    return function != nullptr;
  };
  int (*init)() = nullptr;
  int (*find_device)(const char*, void**) = nullptr;
  int (*energy)(void*, unsigned long long*) = nullptr;  // millijoules
  void* device = nullptr;
  if (find("nvmlInit_v2", init) && find("nvmlDeviceGetHandleByPciBusId_v2", find_device) &&
      find("nvmlDeviceGetTotalEnergyConsumption", energy) && init() == 0 &&
      find_device(bus_address.c_str(), &device) == 0)
    meter.add(
        [energy, device]() -> std::optional<std::int64_t> {
          unsigned long long millijoules = 0;
          if (energy(device, &millijoules) != 0) return std::nullopt;
          return static_cast<std::int64_t>(1000 * millijoules);
        },
        0, "nvml");
  return meter;
}

double EnergyMeter::look() {
  for (Counter& counter : counters_) {
    const std::optional<std::int64_t> number = counter.now();
    if (!number) source_ = "refused";
    const auto now = static_cast<double>(number.value_or(0));
    joules_ += 1e-6 * (now - counter.last + (now < counter.last ? counter.range : 0));
    counter.last = now;
  }
  return source_ == "powercap" || source_ == "nvml" ? joules_ : std::numeric_limits<double>::quiet_NaN();
}

}  // namespace ab
