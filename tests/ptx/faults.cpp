// SPDX-License-Identifier: MIT
#include "tests/ptx/faults.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <set>

namespace ptx {
namespace {

/// Lets a process with faults fail at its end. With PTX_STATISTICS it says what ran.
struct AtExit {
  ~AtExit() {
    const Statistics& s = statistics();
    if (s.faults == 0 && !std::getenv("PTX_STATISTICS")) return;
    std::fprintf(stderr, "PTX: %llu launches, %.1f million instructions, %llu faults\n",
                 static_cast<unsigned long long>(s.launches), static_cast<double>(s.instructions) * 1e-6,
                 static_cast<unsigned long long>(s.faults));
    std::fflush(nullptr);
    if (s.faults > 0) _exit(1);
  }
} at_exit;

}  // namespace

// Never destroyed: threads of streams may outlive what is static.
std::recursive_mutex& device_mutex() {
  static auto& mutex = *new std::recursive_mutex;
  return mutex;
}
Statistics& statistics() {
  static auto& s = *new Statistics;
  return s;
}

void report(const std::string& what, const std::string& details) {
  const std::lock_guard lock(device_mutex());
  ++statistics().faults;
  static auto& told = *new std::set<std::string>;
  if (told.insert(what).second) std::fprintf(stderr, "PTX fault: %s%s\n", what.c_str(), details.c_str());
}

void give_up(const std::string& what) {
  std::fprintf(stderr, "PTX fault: %s\n", what.c_str());
  std::abort();
}

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* const text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace ptx
