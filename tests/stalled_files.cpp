// SPDX-License-Identifier: MIT
//
// For LD_PRELOAD: a network disk that has gone, where a file with "stalled" in its name is never opened, stale.jpg never
// found, and moved.jpg found at the third time.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

extern "C" FILE* fopen64(const char* path, const char* mode) {
  static const auto open = reinterpret_cast<FILE* (*)(const char*, const char*)>(dlsym(RTLD_NEXT, "fopen64"));
  static std::atomic<int> moves = 0;
  while (std::strstr(path, "stalled")) pause();
  if (std::strstr(path, "/stale.") || (std::strstr(path, "/moved.") && moves++ < 2)) {
    errno = ESTALE;
    return nullptr;
  }
  return open(path, mode);
}
