// SPDX-License-Identifier: MIT
//
// In the place of NVIDIA's management library: one GPU at 0000:3B:00.0, which takes 2.5 joules between two questions and is gone
// after the third.

extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** device) {
  static int gpu = 0;
  *device = &gpu;
  return address[5] == '3' ? 0 : 6;
}
int nvmlDeviceGetTotalEnergyConsumption(void* device, unsigned long long* millijoules) {
  int& questions = *static_cast<int*>(device);
  *millijoules = 7000ULL + 2500ULL * static_cast<unsigned long long>(questions);
  return ++questions > 3 ? 15 : 0;
}
}
