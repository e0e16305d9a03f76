// SPDX-License-Identifier: MIT
#include "engine/core/control_groups.h"

#include <fstream>

namespace ab {
namespace {

namespace fs = std::filesystem;

bool has_word(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

}  // namespace

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
