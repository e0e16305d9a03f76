#pragma once
// SPDX-License-Identifier: MIT
//
// What a program does that a GPU, its driver or a library of the vendor would not bear.
//   PTX_STATISTICS   a process says at its end what ran

#include <cstdint>
#include <mutex>
#include <string>

namespace ptx {

/// Held by whoever runs a kernel or touches the state of device memory: one at a time.
std::recursive_mutex& device_mutex();

/// Prints `what` the first time that it happens, with details that differ from time to time, and counts. At its end a
/// process with faults exits with 1.
void report(const std::string& what, const std::string& details = {});

/// Prints `what` and ends the process: the doubles cannot go on.
[[noreturn]] void give_up(const std::string& what);

struct Statistics {
  std::uint64_t launches = 0, threads = 0, instructions = 0, faults = 0;
};
Statistics& statistics();

/// Of the environment.
std::uint64_t setting(const char* name, std::uint64_t otherwise);

}  // namespace ptx
