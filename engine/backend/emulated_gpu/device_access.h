#pragma once
// SPDX-License-Identifier: MIT
//
// When the host may touch the memory of the emulated GPU (arena.h): only while it plays the part of the GPU.

#include "engine/core/dtype.h"

namespace ab::emulated_gpu {

/// While one of these lives, on whatever thread, memory of `device` can be read and written. No effect for the CPU.
class DeviceAccess {
 public:
  explicit DeviceAccess(Device device);
  ~DeviceAccess();
  DeviceAccess(const DeviceAccess&) = delete;
  DeviceAccess& operator=(const DeviceAccess&) = delete;

 private:
  Device device_;
};

}  // namespace ab::emulated_gpu
