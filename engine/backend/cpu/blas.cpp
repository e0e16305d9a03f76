// SPDX-License-Identifier: MIT
#include "engine/backend/cpu/blas.h"

#include <algorithm>
#include <string_view>

extern "C" const char* openblas_get_corename();

namespace ab::cpu {
namespace {

/// The newest kernels that every release of the last years has for the vectors of this processor.
std::string kernels_of_processor() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) return "SkylakeX";
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "Haswell";
#endif
  return "";
}

/// Kernels of processors without AVX2.
constexpr std::string_view kOld[] = {"Prescott", "Katmai",     "Coppermine",   "Northwood",  "Core2",
                                     "Penryn",   "Dunnington", "Atom",         "Nehalem",    "Sandybridge",
                                     "Athlon",   "Opteron",    "Opteron_SSE3", "Barcelona",  "Bobcat",
                                     "Nano",     "Banias",     "Bulldozer",    "Piledriver", "Steamroller"};

}  // namespace

OpenBlasKernels openblas_kernels() {
  const std::string running = openblas_get_corename();
  const bool old = std::ranges::find(kOld, running) != std::end(kOld);
  return {running, old ? kernels_of_processor() : ""};
}

}  // namespace ab::cpu
