#pragma once
// SPDX-License-Identifier: MIT
//
// Of the GPU of tests/ptx, where it has been preloaded into this process.

#include <dlfcn.h>

#include <cstdint>

namespace ab {

using PtxCount = std::int64_t (*)();
/// A function of that library, or null.
inline PtxCount of_ptx_gpu(const char* name) { return reinterpret_cast<PtxCount>(dlsym(RTLD_DEFAULT, name)); }

inline bool on_ptx_gpu() { return of_ptx_gpu("ptx_host_waits"); }
/// How often a thread of the host has waited with nothing left to do on the GPU: for a stream, or for the last that it issued.
inline std::int64_t host_waits() { return of_ptx_gpu("ptx_host_waits")(); }
inline std::int64_t graph_launches() { return of_ptx_gpu("ptx_graph_launches")(); }

}  // namespace ab
