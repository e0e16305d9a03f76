// SPDX-License-Identifier: MIT
#include "engine/core/available_memory.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>

namespace ab {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();

/// The number after `name` in a file of lines "name number", or the number that a file begins with.
std::optional<std::int64_t> number_in(const fs::path& file, const std::string& name = "") {
  std::ifstream text(file);
  std::string word;
  std::int64_t number = 0;
  if (name.empty()) return text >> number ? std::optional(number) : std::nullopt;  // "max": no limit
  for (std::string line; text >> word && std::getline(text, line);)
    if (word == name) return std::stoll(line);
  return std::nullopt;
}

/// What the group of this folder and those around it leave, up to `top`.
std::int64_t left_by_groups(fs::path folder, const fs::path& top, const char* limit, const char* used,
                            const char* cache) {
  std::int64_t left = kUnknown;
  for (;; folder = folder.parent_path()) {
    const auto most = number_in(folder / limit), now = number_in(folder / used);
    if (most && now) {
      const std::int64_t reclaimable = number_in(folder / "memory.stat", cache).value_or(0);
      left = std::min(left, std::max<std::int64_t>(0, *most - *now + reclaimable));
    }
    if (folder == top || !folder.has_relative_path()) return left;
  }
}

}  // namespace

std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");  // pages: of addresses, resident, ...
  std::int64_t addresses = 0, resident = 0;
  return statm >> addresses >> resident ? resident * sysconf(_SC_PAGESIZE) : 0;
}

std::int64_t available_host_bytes(const std::string& root) {
  std::int64_t left = kUnknown;
  if (const auto kib = number_in(root + "/proc/meminfo", "MemAvailable:")) left = *kib * 1024;
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // number:controllers:path
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    const fs::path unified = root + "/sys/fs/cgroup", own = unified / "memory";
    if (controllers.empty())
      left = std::min(left, left_by_groups(unified / fs::path(path).relative_path(), unified, "memory.max",
                                           "memory.current", "inactive_file"));
    if (controllers == "memory")
      left = std::min(left, left_by_groups(own / fs::path(path).relative_path(), own, "memory.limit_in_bytes",
                                           "memory.usage_in_bytes", "total_inactive_file"));
  }
  return left;
}

}  // namespace ab
