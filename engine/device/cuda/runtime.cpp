// SPDX-License-Identifier: MIT
#include "engine/device/cuda/runtime.h"

#include <array>

#include "engine/device/device.h"

namespace ab::cuda {

std::string describe(cudaError_t status) {
  return fmt::format("CUDA: {} ({})", cudaGetErrorName(status), cudaGetErrorString(status));
}

void throw_failed_call(const char* call, const std::string& description) {
  throw Error(ErrorKind::communication, fmt::format("the GPU reported an error: {}, in {}", description, call));
}

Stream make_stream() {
  cudaStream_t stream = nullptr;
  AB_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return Stream(stream);
}

Event make_event() {
  cudaEvent_t event = nullptr;
  AB_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return Event(event);
}

Event make_timed_event() {
  cudaEvent_t event = nullptr;
  AB_CUDA(cudaEventCreate(&event));
  return Event(event);
}

}  // namespace ab::cuda

namespace ab {

int cuda_device_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  (void)cudaGetLastError();  // the failure is answered here and must not surface at a later launch
  return 0;
}

std::string cuda_device_name(int device_index) {
  cudaDeviceProp of_device{};
  if (cudaGetDeviceProperties(&of_device, device_index) == cudaSuccess) return of_device.name;
  (void)cudaGetLastError();
  return "";
}

std::string cuda_bus_address(int device_index) {
  std::array<char, 32> address{};
  if (cudaDeviceGetPCIBusId(address.data(), static_cast<int>(address.size()), device_index) == cudaSuccess)
    return address.data();
  (void)cudaGetLastError();
  return "";
}

std::string cuda_unavailable_reason() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return {};
  (void)cudaGetLastError();

  int driver = 0;  // as 1000 · major + 10 · minor; stays 0 without a driver
  (void)cudaDriverGetVersion(&driver);
  if (driver == 0) return "there is no NVIDIA driver on this machine; install one, or choose the device cpu";
  if (status == cudaErrorInsufficientDriver)
    return fmt::format("the NVIDIA driver supports CUDA {}.{} but this build needs {}.{}; update the driver",
                       driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
  if (status == cudaSuccess || status == cudaErrorNoDevice)
    return "the driver sees no GPU; check nvidia-smi and CUDA_VISIBLE_DEVICES, or choose the device cpu";
  return fmt::format("the GPU cannot be used ({}); check it with nvidia-smi, or choose the device cpu",
                     cuda::describe(status));
}

}  // namespace ab
