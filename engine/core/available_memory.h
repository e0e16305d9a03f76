#pragma once
// SPDX-License-Identifier: MIT
//
// How much memory this process has, and this machine, or the control group that the process runs in (a container, a job of Slurm), has left.

#include <cstdint>
#include <string>

namespace ab {

/// Bytes that processes here could still take: the least that /proc/meminfo and the limits of all groups around this process
/// leave, file cache counted as free. The largest number where the system tells nothing. `root`: where /proc and /sys are.
std::int64_t available_host_bytes(const std::string& root = "");

/// Bytes of memory that this process has in use; 0 where the system does not tell.
std::int64_t resident_bytes();

}  // namespace ab
