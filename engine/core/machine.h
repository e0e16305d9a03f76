#pragma once
// SPDX-License-Identifier: MIT
//
// How much this process has of its machine: cores and memory, of which the control groups that it runs in (a container, a job of
// Slurm) and the limits of the process itself (ulimit -v, -d) leave a part.

#include <cstdint>
#include <filesystem>
#include <optional>
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

/// The cores of the calling thread. `root`: where /proc and /sys are.
AvailableCores available_cores(const std::string& root = "");

/// The cores that the first of these processes has for itself, as a number, where all compute on one machine: a core is divided
/// among those whose masks hold it, a quota among those of its group.
double cores_of_first(const std::vector<AvailableCores>& processes);

/// The words by which ranks tell each other.
std::string to_text(const AvailableCores& cores);
AvailableCores cores_from_text(const std::string& text);

/// Each machine has another one.
std::string name_of_machine();

/// From here on the process may open as many files and connections as the system allows it, 65,536 at most.
void take_more_descriptors();

/// Bytes that processes here could still take: the least that /proc/meminfo, the limits of all groups around this process and
/// those of the process leave, file cache counted as free. The largest number where the system tells nothing. `root`: where
/// /proc and /sys are; another one than the machine's own has no limits of the process.
std::int64_t available_host_bytes(const std::string& root = "");

/// Bytes that can be taken before the system ends a process for it: as above, or where the machine swaps, what ulimit leaves.
std::int64_t bytes_until_the_end();

/// Bytes that libraries (threads, code that is compiled on the way) may take beside those that are counted.
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

/// The share of each of the processes on this machine in what the system has before it ends them.
std::int64_t bytes_until_the_end_of_each();

/// The number after `name` in a file of lines "name number", or the number that a file begins with; none for "max", and where
/// there is no such file.
std::optional<std::int64_t> number_in(const std::filesystem::path& file, const std::string& name = "");

}  // namespace ab
