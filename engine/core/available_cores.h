#pragma once
// SPDX-License-Identifier: MIT
//
// Which cores of this machine a process may compute on, and how much of them.

#include <string>
#include <vector>

namespace ab {

struct AvailableCores {
  /// The time that a control group (a container, a job of Slurm) gives all its processes.
  struct Quota {
    std::string group;
    double cores;
  };
  std::vector<int> mask;        ///< numbers of the cores that the process may run on
  std::vector<Quota> quotas{};  ///< of all groups around the process that have one
};

/// Of the calling thread. `root`: where /proc and /sys are.
AvailableCores available_cores(const std::string& root = "");

/// The cores that the first of these processes has for itself, as a number, where all compute on one machine: a core is divided
/// among those whose masks hold it, a quota among those of its group.
double cores_of_first(const std::vector<AvailableCores>& processes);

/// How ranks tell each other.
std::string to_text(const AvailableCores& cores);
AvailableCores cores_from_text(const std::string& text);

/// Differs from machine to machine.
std::string name_of_machine();

}  // namespace ab
