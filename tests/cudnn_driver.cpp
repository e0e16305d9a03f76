// SPDX-License-Identifier: MIT
//
// A CUDA driver without a GPU, to be preloaded into a test in which cuDNN is to compile plans. The code that comes of
// it is accepted and goes nowhere; everything else fails. As a library it has the name of the real driver
// (CMakeLists.txt), which is what cuDNN opens.

namespace {

constexpr int kSuccess = 0, kStubLibrary = 34;  // of CUresult
int code;                                       // what handles of loaded code point to

}  // namespace

extern "C" {

int cuLibraryLoadData(void** library, ...) { return *library = &code, kSuccess; }
int cuLibraryGetKernel(void** kernel, ...) { return *kernel = &code, kSuccess; }
int cuKernelGetAttribute(int* value, ...) { return *value = 0, kSuccess; }
int cuKernelSetAttribute(...) { return kSuccess; }
int cuGetErrorName(int, const char** name) { return *name = "CUDA_ERROR_STUB_LIBRARY", kSuccess; }
int cuGetErrorString(int, const char** text) { return *text = "there is no GPU", kSuccess; }

// cuDNN complains of functions that are not there.
#define AB_FAILS(name) \
  int name(...) { return kStubLibrary; }
AB_FAILS(cuInit)
AB_FAILS(cuDriverGetVersion)
AB_FAILS(cuDeviceGet)
AB_FAILS(cuDeviceGetAttribute)
AB_FAILS(cuDeviceGetCount)
AB_FAILS(cuDevicePrimaryCtxRelease)
AB_FAILS(cuDevicePrimaryCtxReset)
AB_FAILS(cuDevicePrimaryCtxRetain)
AB_FAILS(cuCtxGetCurrent)
AB_FAILS(cuCtxGetDevice)
AB_FAILS(cuCtxGetLimit)
AB_FAILS(cuCtxPopCurrent)
AB_FAILS(cuCtxPushCurrent)
AB_FAILS(cuStreamGetCtx)
AB_FAILS(cuStreamSynchronize)
AB_FAILS(cuMemcpyDtoH_v2)
AB_FAILS(cuTensorMapEncodeTiled)
AB_FAILS(cuLibraryLoadFromFile)
AB_FAILS(cuLibraryUnload)
AB_FAILS(cuModuleLoadData)
AB_FAILS(cuModuleLoadDataEx)
AB_FAILS(cuModuleLoadFatBinary)
AB_FAILS(cuModuleGetFunction)
AB_FAILS(cuModuleGetGlobal_v2)
AB_FAILS(cuModuleUnload)
AB_FAILS(cuFuncGetAttribute)
AB_FAILS(cuFuncSetAttribute)
AB_FAILS(cuOccupancyMaxActiveBlocksPerMultiprocessor)
AB_FAILS(cuOccupancyMaxPotentialClusterSize)
AB_FAILS(cuLaunchKernel)
AB_FAILS(cuLaunchKernelEx)
AB_FAILS(cuLaunchCooperativeKernel)
AB_FAILS(cuLinkCreate)
AB_FAILS(cuLinkCreate_v2)
AB_FAILS(cuLinkAddData)
AB_FAILS(cuLinkAddData_v2)
AB_FAILS(cuLinkAddFile_v2)
AB_FAILS(cuLinkComplete)
AB_FAILS(cuLinkDestroy)

}  // extern "C"
