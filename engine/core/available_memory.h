#pragma once
// SPDX-License-Identifier: MIT
//
// How much memory this process has, and this machine, the control group that the process runs in (a container, a job of Slurm)
// and the limits of the process itself (ulimit -v, -d) have left.

#include <cstdint>
#include <string>

namespace ab {

/// Bytes that processes here could still take: the least that /proc/meminfo, the limits of all groups around this process and
/// those of the process leave, file cache counted as free. The largest number where the system tells nothing. `root`: where
/// /proc and /sys are; another one than the machine's own has no limits of the process.
std::int64_t available_host_bytes(const std::string& root = "");

/// Bytes that can be taken before the system ends a process for it: as above, or where the machine swaps, what ulimit leaves.
std::int64_t bytes_until_the_end();

/// What libraries (threads, code that is compiled on the way) may take beside what is counted.
inline constexpr std::int64_t kBytesForLibraries = std::int64_t{24} << 20;

/// Throws Error(config) in one sentence when `what` ("the images of CIFAR-10 need") needs more than is left, an eighth spared,
/// for each of the processes that share this machine; says `remedy`.
void check_host_memory(const std::string& what, std::int64_t bytes, const std::string& remedy);

/// How many processes of this run take memory at the same time on this machine: each has that part of what is left. 1 before.
void share_host_memory(int processes);

/// While one lives, tensors on the CPU take no more from the system than `bytes` less kBytesForLibraries, nor the last of
/// bytes_until_the_end(), where libraries would break off; a larger one throws OutOfMemory. Implemented where tensors get their
/// memory.
class BoundedHostMemory {
 public:
  explicit BoundedHostMemory(std::int64_t bytes);
  ~BoundedHostMemory();
  BoundedHostMemory(const BoundedHostMemory&) = delete;
  BoundedHostMemory& operator=(const BoundedHostMemory&) = delete;
};

/// What is left for each of the processes that share this machine, of what the system has, and before it ends them.
std::int64_t available_host_bytes_of_each();
std::int64_t bytes_until_the_end_of_each();

}  // namespace ab
