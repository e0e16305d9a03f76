// SPDX-License-Identifier: MIT
#include "engine/core/machine.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
#include <limits>
#include <sstream>
#include <thread>

#include "engine/core/check.h"

namespace ab {
namespace {

namespace fs = std::filesystem;

bool has_word(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

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

constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();

std::atomic<int> processes_here{1};

struct PagesOfProcess {
  std::int64_t addresses = 0, data = 0;  // bytes
};

PagesOfProcess pages_of_process() {
  std::ifstream statm("/proc/self/statm");
  PagesOfProcess pages;
  std::int64_t resident = 0, shared = 0, text = 0, library = 0;
  if (!(statm >> pages.addresses >> resident >> shared >> text >> library >> pages.data)) return {};
  for (std::int64_t* count : {&pages.addresses, &pages.data}) *count *= sysconf(_SC_PAGESIZE);
  return pages;
}

/// A folder with the limits of one group.
struct ControlGroup {
  std::filesystem::path folder;
  bool unified;  ///< of version 2, whose files have names of their own
};

/// All groups around this process that limit what `controller` ("memory", "cpu") counts, the innermost first. `root`: where
/// /proc and /sys are.
std::vector<ControlGroup> control_groups(const std::string& controller, const std::string& root) {
  std::vector<ControlGroup> groups;
  std::ifstream lines(root + "/proc/self/cgroup");
  for (std::string line; std::getline(lines, line);) {  // number:controllers:path
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    if (!controllers.empty() && !has_word(controllers, controller)) continue;
    const fs::path mounted = root + "/sys/fs/cgroup", top = controllers.empty() ? mounted : mounted / controller;
    // In a container the path may be that of the machine, which is not mounted; then the top is the container's own group.
    for (fs::path folder = top / fs::path(path).relative_path();; folder = folder.parent_path()) {
      groups.push_back({folder, controllers.empty()});
      if (folder == top || !folder.has_relative_path()) break;
    }
  }
  return groups;
}

std::int64_t left_by_groups(const std::string& root) {
  std::int64_t left = kUnknown;
  for (const auto& [folder, unified] : control_groups("memory", root)) {
    const auto most = number_in(folder / (unified ? "memory.max" : "memory.limit_in_bytes"));
    const auto now = number_in(folder / (unified ? "memory.current" : "memory.usage_in_bytes"));
    if (!most || !now) continue;
    std::int64_t cache = 0;
    for (const char* files : {"inactive_file", "active_file"})
      cache += number_in(folder / "memory.stat", unified ? files : std::string("total_") + files).value_or(0);
    left = std::min(left, std::max<std::int64_t>(0, *most - *now + cache));
  }
  return left;
}

constexpr std::int64_t kAddressesOfLibraries = std::int64_t{48} << 20;  // stacks, and code that is compiled on the way

/// The rest that ulimit leaves, as a shell sets it.
std::int64_t left_by_limits() {
  std::int64_t left = kUnknown;
  const PagesOfProcess now = pages_of_process();
  const auto count = [&](auto resource, std::int64_t used) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    left = std::min(
        left, std::max<std::int64_t>(0, static_cast<std::int64_t>(limit.rlim_cur) - used - kAddressesOfLibraries));
  };
  count(RLIMIT_AS, now.addresses);
  count(RLIMIT_DATA, now.data);
  return left;
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

void take_more_descriptors() {
  constexpr rlim_t kMost = 1 << 16;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, kMost));
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

std::string name_of_machine() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  std::string boot;  // machines that are all called localhost
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return host.data() + ("/" + boot);
}

std::int64_t available_host_bytes(const std::string& root) {
  std::int64_t left = left_by_groups(root);
  if (const auto kib = number_in(root + "/proc/meminfo", "MemAvailable:")) left = std::min(left, *kib * 1024);
  return root.empty() ? std::min(left, left_by_limits()) : left;
}

std::int64_t bytes_until_the_end() {
  return number_in("/proc/meminfo", "SwapFree:").value_or(0) > 0 ? left_by_limits() : available_host_bytes();
}

void share_host_memory(int processes) { processes_here = std::max(1, processes); }

std::int64_t bytes_until_the_end_of_each() { return bytes_until_the_end() / processes_here; }

void check_host_memory(const std::string& what, std::int64_t bytes, const std::string& remedy) {
  const std::int64_t left = available_host_bytes() / processes_here;
  AB_CHECK(bytes + bytes / 8 <= left, "{} {:.0f} MB of memory, and {:.0f} MB are left{}; {}", what,
           static_cast<double>(bytes) / 1e6, static_cast<double>(left) / 1e6,
           processes_here > 1 ? " for each process" : "", remedy);
}

std::optional<std::int64_t> number_in(const fs::path& file, const std::string& name) {
  std::ifstream text(file);
  std::string word;
  std::int64_t number = 0;
  if (name.empty()) return text >> number ? std::optional(number) : std::nullopt;
  while (text >> word) {
    if (word == name) return text >> number ? std::optional(number) : std::nullopt;
    std::getline(text, word);
  }
  return std::nullopt;
}

}  // namespace ab
