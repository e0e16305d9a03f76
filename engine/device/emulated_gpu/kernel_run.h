#pragma once
// SPDX-License-Identifier: MIT
//
// How a loop plays the part of a kernel on the emulated GPU (arena.h): the memory of that GPU is open meanwhile, and
// the kernel's arguments must not point to tensors in host memory, which a real GPU could not reach.

#include <cstddef>
#include <typeinfo>

#include "engine/core/dtype.h"

namespace ab::emulated_gpu {

/// While one of these lives, on whatever thread, memory of `device` can be read and written. No effect for the CPU.
class KernelRun {
 public:
  /// Throws Bug when a member of `kernel` is the address of a block of host memory.
  template <class Kernel> KernelRun(Device device, Kernel kernel) : device_(device) {
    __builtin_clear_padding(&kernel);  // an old address between two members is none of them
    begin(&kernel, sizeof(kernel), typeid(Kernel).name());
  }
  ~KernelRun();
  KernelRun(const KernelRun&) = delete;
  KernelRun& operator=(const KernelRun&) = delete;

 private:
  void begin(const void* kernel, std::size_t bytes, const char* type_name);

  Device device_;
};

}  // namespace ab::emulated_gpu
