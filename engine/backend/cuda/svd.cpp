// SPDX-License-Identifier: MIT
//
// Thin singular value decompositions by cuSOLVER, which stores matrices by columns: its m×n matrix is a row-major tensor
// [n, m] here, and the comments say so.
#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/backend/cuda/cuda_backend.h"
#include "engine/backend/cuda/libraries.h"
#include "engine/backend/cuda/thread_libraries.h"
#include "engine/core/memory.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/reduce.h"

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
    AB_CHECK_KIND(numerics, info == 0, "svd: the {} did not converge on the {}×{} matrix", what, rows, columns);
  }

 private:
  Tensor word_;
};

/// Replaces the symmetric a[n,n] (float64) by its eigenvectors, one per row; returns the eigenvalues [n],
/// both in ascending order.
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

/// Replaces the rows of `vectors` [n, m] (float64), m >= n, by orthonormal ones (Householder QR). Returns the
/// signs (float32 [n]) that they are still to be multiplied by: row j then points along the old row j, as far
/// as that is independent of the rows before it.
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

// Singular values below this part of the largest carry too little of the eigenvectors' accuracy into U: it is
// orthonormalised then instead of scaled (see cpu/svd.cpp).
constexpr double kSafeRatio = 1e-4;

/// -1 where the entry of largest magnitude of a row is negative, else 1.   rows: [n, length] float64, in host memory
std::vector<double> row_signs(const Tensor& rows) {
  const std::int64_t n = rows.dim(0), length = rows.dim(1);
  std::vector<double> signs(static_cast<std::size_t>(n), 1.0);
  for (std::int64_t j = 0; j < n; ++j) {
    const double* row = rows.data<double>() + j * length;
    const double* peak =
        std::max_element(row, row + length, [](double a, double b) { return std::abs(a) < std::abs(b); });
    if (*peak < 0) signs[static_cast<std::size_t>(j)] = -1;
  }
  return signs;
}

/// Singular values, descending, and right vectors, as rows with fixed signs. Both are float64 in host memory:
/// the iteration has to be waited for anyway, and ordering n² numbers is nothing beside it.
struct GramEigen {
  std::vector<double> sigma;
  Tensor vt;  ///< [n, n]
};

GramEigen gram_eigen(ThreadLibraries& libraries, const Tensor& w64) {
  const std::int64_t n = w64.dim(1);
  const Tensor gram({n, n}, DType::float64, w64.device());
  backend(w64.device()).gemm({.transpose_a = true}, w64, w64, gram);
  const std::vector<double> values = eigen_in_place(libraries, gram).to_doubles();
  const Tensor ascending = gram.to(Device{});

  GramEigen eigen{std::vector<double>(static_cast<std::size_t>(n)), Tensor({n, n}, DType::float64)};
  std::transform(values.rbegin(), values.rend(), eigen.sigma.begin(),
                 [](double value) { return std::sqrt(std::max(value, 0.0)); });
  const std::vector<double> signs = row_signs(ascending);
  for (std::int64_t j = 0; j < n; ++j) {
    const double* from = ascending.data<double>() + (n - 1 - j) * n;
    const double sign = signs[static_cast<std::size_t>(n - 1 - j)];
    std::transform(from, from + n, eigen.vt.data<double>() + j * n, [sign](double v) { return sign * v; });
  }
  return eigen;
}

Svd svd_gram(ThreadLibraries& libraries, const Tensor& w) {
  const std::int64_t m = w.dim(0), n = w.dim(1);
  const Device device = w.device();
  const Tensor w64 = cast(w, DType::float64), y({m, n}, DType::float64, device);
  const GramEigen eigen = gram_eigen(libraries, w64);
  const std::vector<float> sigma(eigen.sigma.begin(), eigen.sigma.end());
  Svd result{{}, Tensor::from(sigma, {n}, device), cast(eigen.vt.to(device), DType::float32)};

  if (eigen.sigma.back() > kSafeRatio * eigen.sigma.front()) {
    // Dividing the rows of Vᵀ by s first makes the product U itself.
    const Tensor scaled = eigen.vt.clone();
    for (std::int64_t i = 0; i < n * n; ++i) scaled.data<double>()[i] /= eigen.sigma[static_cast<std::size_t>(i / n)];
    backend(device).gemm({.transpose_b = true}, w64, scaled.to(device), y);
    result.u = cast(y, DType::float32);
  } else {
    backend(device).gemm({.transpose_b = true}, w64, eigen.vt.to(device), y);
    const Tensor vectors = transpose(y);
    const Tensor signs = orthonormalise_rows(libraries, vectors);
    result.u = cast(transpose(vectors), DType::float32);
    scale_columns(result.u, signs);
  }
  return result;
}

}  // namespace

Svd CudaBackend::svd(const Tensor& w) {
  AB_CHECK_KIND(numerics, all_finite(w),
                "svd: the {} matrix holds NaN or infinity; lower the learning rate or look for the first bad step",
                w.shape().str());
  return svd_gram(libraries(), w);
}

}  // namespace ab::cuda
