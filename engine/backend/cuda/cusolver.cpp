// SPDX-License-Identifier: MIT
#include "engine/backend/cuda/cusolver.h"

#include <algorithm>
#include <vector>

#include "engine/backend/cuda/libraries.h"
#include "engine/core/memory.h"

namespace ab::cuda {
namespace {

CusolverParams make_params() {
  cusolverDnParams_t params = nullptr;
  AB_CUDA(cusolverDnCreateParams(&params));
  return CusolverParams(params);
}

/// The status word that cuSOLVER leaves on the device: 0 done, > 0 did not converge.
class DeviceInfo {
 public:
  explicit DeviceInfo(Device device) : word_({static_cast<std::int64_t>(sizeof(int))}, DType::uint8, device) {}

  int* pointer() const { return static_cast<int*>(word_.raw()); }

  /// Waits for the device.
  void check(const char* what, std::int64_t rows, std::int64_t columns) const {
    int info = 0;
    memory(word_.device()).copy_to_host(&info, word_.raw(), sizeof info);
    AB_ASSERT(info >= 0);
    AB_CHECK_KIND(numerics, info == 0, "svd: the {} did not converge on the {}×{} matrix; try the other method", what,
                  rows, columns);
  }

 private:
  Tensor word_;
};

}  // namespace

Tensor eigen_in_place(ThreadLibraries& libraries, const Tensor& a) {
  const std::int64_t n = a.dim(0);
  const Tensor values({n}, DType::float64, a.device());
  const DeviceInfo info(a.device());
  const CusolverParams params = make_params();
  std::size_t device_bytes = 0, host_bytes = 0;
  AB_CUDA(cusolverDnXsyevd_bufferSize(libraries.cusolver(), params.get(), CUSOLVER_EIG_MODE_VECTOR,
                                      CUBLAS_FILL_MODE_LOWER, n, CUDA_R_64F, a.raw(), n, CUDA_R_64F, values.raw(),
                                      CUDA_R_64F, &device_bytes, &host_bytes));
  std::vector<char> host_buffer(host_bytes);
  AB_CUDA(cusolverDnXsyevd(libraries.cusolver(), params.get(), CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, n,
                           CUDA_R_64F, a.raw(), n, CUDA_R_64F, values.raw(), CUDA_R_64F,
                           libraries.stream().workspace(device_bytes), device_bytes, host_buffer.data(), host_bytes,
                           info.pointer()));
  info.check("eigenvalue iteration", n, n);
  return values;
}

ColumnSvd svd_of_columns(ThreadLibraries& libraries, const Tensor& columns) {
  const std::int64_t n = columns.dim(0), m = columns.dim(1);
  const Device device = columns.device();
  ColumnSvd result{Tensor({n, m}, DType::float32, device), Tensor({n}, DType::float32, device),
                   Tensor({n, n}, DType::float32, device)};
  const DeviceInfo info(device);
  const CusolverParams params = make_params();
  std::size_t device_bytes = 0, host_bytes = 0;
  AB_CUDA(cusolverDnXgesvd_bufferSize(libraries.cusolver(), params.get(), 'S', 'S', m, n, CUDA_R_32F, columns.raw(), m,
                                      CUDA_R_32F, result.s.raw(), CUDA_R_32F, result.u_columns.raw(), m, CUDA_R_32F,
                                      result.v.raw(), n, CUDA_R_32F, &device_bytes, &host_bytes));
  std::vector<char> host_buffer(host_bytes);
  AB_CUDA(cusolverDnXgesvd(libraries.cusolver(), params.get(), 'S', 'S', m, n, CUDA_R_32F, columns.raw(), m, CUDA_R_32F,
                           result.s.raw(), CUDA_R_32F, result.u_columns.raw(), m, CUDA_R_32F, result.v.raw(), n,
                           CUDA_R_32F, libraries.stream().workspace(device_bytes), device_bytes, host_buffer.data(),
                           host_bytes, info.pointer()));
  info.check("singular value iteration", m, n);
  return result;
}

Tensor orthonormalise_rows(ThreadLibraries& libraries, const Tensor& vectors) {
  const int n = static_cast<int>(vectors.dim(0)), m = static_cast<int>(vectors.dim(1));
  double* a = vectors.data<double>();
  const Tensor tau({n}, DType::float64, vectors.device());
  const DeviceInfo info(vectors.device());
  cusolverDnHandle_t handle = libraries.cusolver();

  int size_qr = 0, size_q = 0;  // in elements
  AB_CUDA(cusolverDnDgeqrf_bufferSize(handle, m, n, a, m, &size_qr));
  AB_CUDA(cusolverDnDorgqr_bufferSize(handle, m, n, n, a, m, tau.data<double>(), &size_q));
  const int size = std::max(size_qr, size_q);
  auto* work = static_cast<double*>(libraries.stream().workspace(static_cast<std::size_t>(size) * sizeof(double)));

  AB_CUDA(cusolverDnDgeqrf(handle, m, n, a, m, tau.data<double>(), work, size, info.pointer()));
  // R's diagonal, strided over the matrix, says which vectors came out reversed.
  std::vector<double> diagonal(static_cast<std::size_t>(n));
  AB_CUDA(cudaMemcpy2DAsync(diagonal.data(), sizeof(double), a, static_cast<std::size_t>(m + 1) * sizeof(double),
                            sizeof(double), diagonal.size(), cudaMemcpyDeviceToHost, libraries.stream().handle()));
  AB_CUDA(cusolverDnDorgqr(handle, m, n, n, a, m, tau.data<double>(), work, size, info.pointer()));
  info.check("orthonormalisation", m, n);  // also waits for the diagonal

  std::vector<float> signs(diagonal.size());
  std::transform(diagonal.begin(), diagonal.end(), signs.begin(), [](double r) { return r < 0 ? -1.0f : 1.0f; });
  return Tensor::from(signs, {n}, vectors.device());
}

}  // namespace ab::cuda
