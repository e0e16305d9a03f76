// SPDX-License-Identifier: MIT
#include "engine/device/emulated_gpu/kernel_run.h"

#include <cstring>

#include "engine/device/emulated_gpu/arena.h"

namespace ab::emulated_gpu {

void KernelRun::begin(const void* kernel, std::size_t bytes, const char* type_name) {
  if (device_.kind == DeviceKind::cpu) return;
  for (std::size_t at = 0; at + sizeof(void*) <= bytes; at += sizeof(void*)) {
    const void* pointer = nullptr;
    std::memcpy(&pointer, static_cast<const std::byte*>(kernel) + at, sizeof(pointer));
    AB_ASSERT(!is_host_block(pointer));
  }
  arena(device_.index).open(type_name);
}

KernelRun::~KernelRun() {
  if (device_.kind == DeviceKind::cuda) arena(device_.index).close();
}

}  // namespace ab::emulated_gpu
