// SPDX-License-Identifier: MIT
#include "engine/core/available_memory.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <limits>

#include "engine/core/check.h"
#include "engine/core/control_groups.h"

namespace ab {
namespace {

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

/// What ulimit leaves, as a shell sets it.
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
std::int64_t available_host_bytes_of_each() { return available_host_bytes() / processes_here; }

void check_host_memory(const std::string& what, std::int64_t bytes, const std::string& remedy) {
  const std::int64_t left = available_host_bytes_of_each();
  AB_CHECK(bytes + bytes / 8 <= left, "{} {:.0f} MB of memory, and {:.0f} MB are left{}; {}", what,
           static_cast<double>(bytes) / 1e6, static_cast<double>(left) / 1e6,
           processes_here > 1 ? " for each process" : "", remedy);
}

}  // namespace ab
