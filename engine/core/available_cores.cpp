// SPDX-License-Identifier: MIT
#include "engine/core/available_cores.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <thread>

#include "engine/core/control_groups.h"

namespace ab {
namespace {

std::vector<int> mask_of_thread() {
  std::vector<int> mask;
  // A kernel with more possible cores than the set holds refuses it.
  for (int most = CPU_SETSIZE; most <= (1 << 18) && mask.empty(); most *= 4) {
    cpu_set_t* const set = CPU_ALLOC(static_cast<std::size_t>(most));
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(most));
    if (set && sched_getaffinity(0, bytes, set) == 0)
      for (int core = 0; core < most; ++core)
        if (CPU_ISSET_S(static_cast<std::size_t>(core), bytes, set)) mask.push_back(core);
    CPU_FREE(set);
  }
  if (mask.empty())
    for (unsigned core = 0; core < std::max(1u, std::thread::hardware_concurrency()); ++core)
      mask.push_back(static_cast<int>(core));
  return mask;
}

}  // namespace

AvailableCores available_cores(const std::string& root) {
  AvailableCores cores{mask_of_thread()};
  for (const auto& [folder, unified] : control_groups("cpu", root)) {
    std::int64_t quota = 0, period = 0;  // microseconds of computing in each period
    if (unified) {
      std::ifstream(folder / "cpu.max") >> quota >> period;  // "max 100000": none
    } else {
      quota = number_in(folder / "cpu.cfs_quota_us").value_or(0);
      period = number_in(folder / "cpu.cfs_period_us").value_or(0);
    }
    if (quota > 0 && period > 0)
      cores.quotas.push_back({folder.string(), static_cast<double>(quota) / static_cast<double>(period)});
  }
  return cores;
}

double cores_of_first(const std::vector<AvailableCores>& processes) {
  const AvailableCores& first = processes.at(0);
  double cores = 0;
  for (const int core : first.mask)
    cores += 1.0 / static_cast<double>(std::ranges::count_if(
                       processes, [&](const AvailableCores& p) { return std::ranges::count(p.mask, core) > 0; }));
  for (const AvailableCores::Quota& quota : first.quotas) {
    const auto has_it = [&](const AvailableCores& p) {
      return std::ranges::any_of(p.quotas, [&](const AvailableCores::Quota& q) { return q.group == quota.group; });
    };
    cores = std::min(cores, quota.cores / static_cast<double>(std::ranges::count_if(processes, has_it)));
  }
  return cores;
}

std::string to_text(const AvailableCores& cores) {
  std::string text = fmt::format("{}\n", fmt::join(cores.mask, " "));
  for (const auto& [group, quota] : cores.quotas) text += fmt::format("{} {}\n", quota, group);
  return text;
}

AvailableCores cores_from_text(const std::string& text) {
  AvailableCores cores;
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  std::istringstream mask(line);
  for (int core; mask >> core;) cores.mask.push_back(core);
  for (AvailableCores::Quota quota; lines >> quota.cores && std::getline(lines >> std::ws, quota.group);)
    cores.quotas.push_back(quota);
  return cores;
}

std::string name_of_machine() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  std::string boot;  // machines that are all called localhost
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return host.data() + ("/" + boot);
}

}  // namespace ab
