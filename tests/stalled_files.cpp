// SPDX-License-Identifier: MIT
//
// For LD_PRELOAD: a file with "stalled" in its name is never opened, as on a network disk that has gone.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

extern "C" FILE* fopen64(const char* path, const char* mode) {
  static const auto open = reinterpret_cast<FILE* (*)(const char*, const char*)>(dlsym(RTLD_NEXT, "fopen64"));
  while (std::strstr(path, "stalled")) pause();
  return open(path, mode);
}
