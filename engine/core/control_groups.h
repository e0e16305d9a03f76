#pragma once
// SPDX-License-Identifier: MIT
//
// The control groups (a container, a job of Slurm) that this process runs in.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace ab {

/// A folder with the limits of one group.
struct ControlGroup {
  std::filesystem::path folder;
  bool unified;  ///< of version 2, whose files have names of their own
};

/// All groups around this process that limit what `controller` ("memory", "cpu") counts, the innermost first. `root`: where
/// /proc and /sys are.
std::vector<ControlGroup> control_groups(const std::string& controller, const std::string& root);

/// The number after `name` in a file of lines "name number", or the number that a file begins with; none for "max", and where
/// there is no such file.
std::optional<std::int64_t> number_in(const std::filesystem::path& file, const std::string& name = "");

}  // namespace ab
