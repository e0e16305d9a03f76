// SPDX-License-Identifier: MIT
//
// The calls of cuSOLVER that we make, by LAPACK.
#include <cusolverDn.h>

#include <cstring>
#include <string>
#include <vector>

#include "engine/backend/cpu/blas.h"
#include "tests/ptx/faults.h"
#include "tests/ptx/memory.h"
#include "tests/ptx/streams.h"

using ptx::on_host;

namespace {

cudaStream_t& stream_of(cusolverDnHandle_t handle) { return *reinterpret_cast<cudaStream_t*>(handle); }

constexpr std::size_t kHostBytes = 128;  // that the double asks for

/// Whether matrices and vectors of a call are where they should be. What a call writes is defined once it has run.
template <class T> bool takes(const T* at, std::int64_t count, const char* call) {
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
  if (!ptx::is_on_device(at, bytes, call)) return false;
  if (!ptx::is_defined(at, bytes)) ptx::report(std::string(call) + " reads what nobody has written");
  return true;
}
template <class T> bool fills(T* at, std::int64_t count, const char* call) {
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
  if (!ptx::is_on_device(at, bytes, call)) return false;
  return ptx::set_defined(at, bytes), true;
}

}  // namespace

extern "C" {

cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t* handle) {
  return *handle = reinterpret_cast<cusolverDnHandle_t>(new cudaStream_t{}), CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t handle) {
  return delete &stream_of(handle), CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t handle, cudaStream_t stream) {
  return stream_of(handle) = stream, CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnCreateParams(cusolverDnParams_t* params) {
  return *params = reinterpret_cast<cusolverDnParams_t>(new int), CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnDestroyParams(cusolverDnParams_t params) {
  return delete reinterpret_cast<int*>(params), CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnXsyevd_bufferSize(cusolverDnHandle_t, cusolverDnParams_t, cusolverEigMode_t,
                                             cublasFillMode_t, std::int64_t n, cudaDataType, const void*, std::int64_t,
                                             cudaDataType, const void*, cudaDataType, std::size_t* on_device,
                                             std::size_t* on_host) {
  *on_device = static_cast<std::size_t>(n * n) * sizeof(double) + 4096;
  *on_host = kHostBytes;
  return CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnXsyevd(cusolverDnHandle_t handle, cusolverDnParams_t, cusolverEigMode_t,
                                  cublasFillMode_t fill, std::int64_t n, cudaDataType type, void* matrix,
                                  std::int64_t lda, cudaDataType, void* values, cudaDataType, void* work,
                                  std::size_t work_bytes, void* host, std::size_t host_bytes, int* info) {
  if (type != CUDA_R_64F || !host || host_bytes < kHostBytes) ptx::report("cusolverDnXsyevd: its arguments");
  ptx::enqueue(stream_of(handle), [=] {
    constexpr const char* call = "cusolverDnXsyevd";
    auto *const a = static_cast<double*>(matrix), *const w = static_cast<double*>(values);
    if (!takes(a, lda * n, call) || !fills(w, n, call) || !fills(info, 1, call)) return;
    ptx::use_workspace(work, work_bytes, call);
    const char* const triangle = fill == CUBLAS_FILL_MODE_LOWER ? "L" : "U";
    const int order = static_cast<int>(n), leading = static_cast<int>(lda);
    const int lwork = 1 + 6 * order + 2 * order * order, liwork = 3 + 5 * order;
    std::vector<double> space(static_cast<std::size_t>(lwork));
    std::vector<int> indices(static_cast<std::size_t>(liwork));
    dsyevd_("V", triangle, &order, on_host(a), &leading, on_host(w), space.data(), &lwork, indices.data(), &liwork,
            on_host(info));
  });
  return CUSOLVER_STATUS_SUCCESS;
}

cusolverStatus_t cusolverDnDgeqrf_bufferSize(cusolverDnHandle_t, int m, int n, double*, int, int* elements) {
  return *elements = m + 64 * n, CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnDgeqrf(cusolverDnHandle_t handle, int m, int n, double* a, int lda, double* tau,
                                  double* work, int elements, int* info) {
  ptx::enqueue(stream_of(handle), [=] {
    constexpr const char* call = "cusolverDnDgeqrf";
    if (!takes(a, std::int64_t{lda} * n, call) || !fills(tau, n, call) || !fills(info, 1, call)) return;
    ptx::use_workspace(work, static_cast<std::size_t>(elements) * sizeof(double), call);
    const int lwork = 64 * n;
    std::vector<double> space(static_cast<std::size_t>(lwork));
    dgeqrf_(&m, &n, on_host(a), &lda, on_host(tau), space.data(), &lwork, on_host(info));
  });
  return CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnDorgqr_bufferSize(cusolverDnHandle_t, int m, int n, int, const double*, int, const double*,
                                             int* elements) {
  return *elements = m + 65 * n, CUSOLVER_STATUS_SUCCESS;
}
cusolverStatus_t cusolverDnDorgqr(cusolverDnHandle_t handle, int m, int n, int k, double* a, int lda, const double* tau,
                                  double* work, int elements, int* info) {
  ptx::enqueue(stream_of(handle), [=] {
    constexpr const char* call = "cusolverDnDorgqr";
    if (!takes(a, std::int64_t{lda} * n, call) || !takes(tau, k, call) || !fills(info, 1, call)) return;
    ptx::use_workspace(work, static_cast<std::size_t>(elements) * sizeof(double), call);
    const int lwork = 64 * n;
    std::vector<double> space(static_cast<std::size_t>(lwork));
    dorgqr_(&m, &n, &k, on_host(a), &lda, on_host(tau), space.data(), &lwork, on_host(info));
  });
  return CUSOLVER_STATUS_SUCCESS;
}

}  // extern "C"
