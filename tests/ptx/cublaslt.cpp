// SPDX-License-Identifier: MIT
//
// cuBLASLt by its documentation: columns first, sums in double. A promise that does not hold is reported where the real
// library would read or write wrong memory.
//   PTX_EPILOGUES=0   products have none: a bias is added by a kernel of ours
//   PTX_PRODUCTS=0    there is no algorithm; 1: there is none for those who say how sums are reduced
#include <cublasLt.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "tests/ptx/elements.h"
#include "tests/ptx/faults.h"
#include "tests/ptx/memory.h"
#include "tests/ptx/streams.h"

namespace {

struct Layout {
  cudaDataType type;
  std::int64_t rows, columns, leading;
  std::int32_t batch = 1;
  std::int64_t stride = 0;

  std::int64_t column(std::int64_t in_batch, std::int64_t j) const { return in_batch * stride + j * leading; }
};
struct Description {
  cublasComputeType_t compute;
  cudaDataType scale;
  cublasOperation_t op_a = CUBLAS_OP_N, op_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
};
struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t reductions = 0, align[4] = {256, 256, 256, 256};
};
/// In the 64 bytes of an algorithm: for what it was chosen.
struct Algorithm {
  std::uint32_t epilogue, align[4];
  std::int64_t m, n, k, workspace;
};
static_assert(sizeof(Algorithm) <= sizeof(cublasLtMatmulAlgo_t));

template <class T, class Handle> T& of(Handle handle) { return *reinterpret_cast<T*>(handle); }
template <class Handle, class T> cublasStatus_t make(Handle* handle, T* made) {
  return *handle = reinterpret_cast<Handle>(made), CUBLAS_STATUS_SUCCESS;
}
template <class T> cublasStatus_t set(T& to, const void* from, std::size_t bytes) {
  if (bytes != sizeof(T)) ptx::give_up("cuBLASLt: an attribute of another size");
  return std::memcpy(&to, from, bytes), CUBLAS_STATUS_SUCCESS;
}

ab::DType dtype(cudaDataType type) {
  switch (type) {
    case CUDA_R_32F: return ab::DType::float32;
    case CUDA_R_16BF: return ab::DType::bfloat16;
    case CUDA_R_16F: return ab::DType::float16;
    case CUDA_R_64F: return ab::DType::float64;
    default: ptx::give_up("cuBLASLt: a type that the double does not know");
  }
}

/// Why the matrices do not fit what is to be computed, or null.
const char* mismatch(const Description& d, const Layout& a, const Layout& b, const Layout& c, const Layout& result) {
  const bool ta = d.op_a != CUBLAS_OP_N, tb = d.op_b != CUBLAS_OP_N;
  if ((ta ? a.rows : a.columns) != (tb ? b.columns : b.rows)) return "inner dimensions differ";
  if ((ta ? a.columns : a.rows) != result.rows || (tb ? b.rows : b.columns) != result.columns) return "D's size";
  if (c.rows != result.rows || c.columns != result.columns) return "C's size is not D's";
  for (const Layout* l : {&a, &b, &c, &result}) {
    if (l->leading < l->rows) return "a leading dimension below the rows";
    if (l->batch != result.batch) return "batches differ";
    if (l->type != result.type) return "types differ";
  }
  const bool is_double = result.type == CUDA_R_64F;
  if (is_double != (d.compute == CUBLAS_COMPUTE_64F) || is_double != (d.scale == CUDA_R_64F))
    return "a computing type of another precision";
  if (d.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && result.type != CUDA_R_32F) return "TF32 for 16 bits";
  if (d.epilogue != CUBLASLT_EPILOGUE_DEFAULT && !d.bias) return "an epilogue without an address";
  return nullptr;
}

struct Product {
  Description description;
  Layout layouts[4];  // of A, B, C, D
  const void *a, *b, *c;
  void *d, *workspace;
  std::size_t workspace_bytes;
  double alpha, beta;

  std::size_t element_bytes() const { return size_of(dtype(layouts[3].type)); }

  bool is_on_device(const void* at, const Layout& l, const char* what) const {
    const std::int64_t extent = l.column(l.batch - 1, l.columns - 1) + l.rows;
    return ptx::is_on_device(at, static_cast<std::size_t>(extent) * element_bytes(), what);
  }

  /// The matrix of a batch, or its transpose, by columns.
  std::vector<double> read(const void* at, const Layout& l, std::int64_t batch, bool transposed) const {
    std::vector<double> values(static_cast<std::size_t>(l.rows * l.columns));
    for (std::int64_t j = 0; j < l.columns; ++j) {
      const char* const column =
          static_cast<const char*>(at) + l.column(batch, j) * static_cast<std::int64_t>(element_bytes());
      if (!ptx::is_defined(column, static_cast<std::size_t>(l.rows) * element_bytes()))
        ptx::report("cublasLtMatmul reads what nobody has written");
      for (std::int64_t i = 0; i < l.rows; ++i)
        values[static_cast<std::size_t>(transposed ? i * l.columns + j : j * l.rows + i)] =
            ptx::get_element(column, i, dtype(l.type));
    }
    return values;
  }

  void run() const {
    if (!is_on_device(a, layouts[0], "cublasLtMatmul: A") || !is_on_device(b, layouts[1], "cublasLtMatmul: B") ||
        (beta != 0 && !is_on_device(c, layouts[2], "cublasLtMatmul: C")) ||
        !is_on_device(d, layouts[3], "cublasLtMatmul: D"))
      return;
    ptx::use_workspace(workspace, workspace_bytes, "cublasLtMatmul: the workspace");
    for (std::int64_t batch = 0; batch < layouts[3].batch; ++batch) multiply(batch);
  }

  void multiply(std::int64_t batch) const {
    const Layout& l = layouts[3];
    const std::int64_t m = l.rows, n = l.columns;
    const std::vector<double> rows = read(a, layouts[0], batch, description.op_a == CUBLAS_OP_N);
    const std::vector<double> columns = read(b, layouts[1], batch, description.op_b != CUBLAS_OP_N);
    const std::vector<double> addend = beta != 0 ? read(c, layouts[2], batch, false) : std::vector<double>();
    const std::int64_t k = static_cast<std::int64_t>(rows.size()) / m;
    for (std::int64_t j = 0; j < n; ++j) {
      const double* const of_b = columns.data() + j * k;
      char* const column = static_cast<char*>(d) + l.column(batch, j) * static_cast<std::int64_t>(element_bytes());
      for (std::int64_t i = 0; i < m; ++i) {
        const double* const of_a = rows.data() + i * k;
        double sum = 0;
        for (std::int64_t p = 0; p < k; ++p) sum += of_a[p] * of_b[p];
        sum *= alpha;
        if (beta != 0) sum += beta * addend[static_cast<std::size_t>(j * m + i)];
        if (description.epilogue == CUBLASLT_EPILOGUE_BIAS) sum += bias(i);
        ptx::set_element(column, i, dtype(l.type), sum);
      }
      ptx::set_defined(column, static_cast<std::size_t>(m) * element_bytes());
    }
    if (description.epilogue == CUBLASLT_EPILOGUE_BGRADB) sum_b(columns, n, k);
  }

  double bias(std::int64_t i) const {
    const void* const at = static_cast<const char*>(description.bias) + static_cast<std::size_t>(i) * element_bytes();
    if (!ptx::is_on_device(at, element_bytes(), "cublasLtMatmul: the bias")) return 0;
    if (!ptx::is_defined(at, element_bytes())) ptx::report("cublasLtMatmul reads a bias that nobody has written");
    return ptx::get_element(description.bias, i, dtype(layouts[3].type));
  }
  void sum_b(const std::vector<double>& columns, std::int64_t n, std::int64_t k) const {
    const std::size_t bytes = static_cast<std::size_t>(n) * element_bytes();
    if (!ptx::is_on_device(description.bias, bytes, "cublasLtMatmul: the gradient of the bias")) return;
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t p = 0; p < k; ++p) sum += columns[static_cast<std::size_t>(j * k + p)];
      ptx::set_element(description.bias, j, dtype(layouts[3].type), sum);
    }
    ptx::set_defined(description.bias, bytes);
  }
};

void check_alignment(const void* at, std::uint32_t promised, const char* what) {
  if (reinterpret_cast<std::uintptr_t>(at) % promised != 0)
    ptx::report(std::string("cublasLtMatmul: less aligned than promised: ") + what);
}

}  // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) { return make(handle, new int); }
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return delete &of<int>(handle), CUBLAS_STATUS_SUCCESS; }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* d, cublasComputeType_t compute, cudaDataType scale) {
  return make(d, new Description{compute, scale});
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d) {
  return delete &of<Description>(d), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle, cublasLtMatmulDescAttributes_t name,
                                              const void* value, std::size_t bytes) {
  Description& d = of<Description>(handle);
  switch (name) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return set(d.op_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB: return set(d.op_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(d.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(d.bias, value, bytes);
    default: ptx::give_up("cuBLASLt: an attribute of a product that the double does not know");
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t leading) {
  return make(layout, new Layout{type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), leading});
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return delete &of<Layout>(layout), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle, cublasLtMatrixLayoutAttribute_t name,
                                                const void* value, std::size_t bytes) {
  Layout& layout = of<Layout>(handle);
  if (name == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT) return set(layout.batch, value, bytes);
  if (name == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET) return set(layout.stride, value, bytes);
  ptx::give_up("cuBLASLt: an attribute of a layout that the double does not know");
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* p) { return make(p, new Preference); }
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  return delete &of<Preference>(p), CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t name, const void* value,
                                                    std::size_t bytes) {
  Preference& p = of<Preference>(handle);
  switch (name) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES: return set(p.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK: return set(p.reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES: return set(p.align[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES: return set(p.align[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES: return set(p.align[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: return set(p.align[3], value, bytes);
    default: ptx::give_up("cuBLASLt: a preference that the double does not know");
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[], int* found) {
  const auto& of_product = of<Description>(description);
  const auto &of_a = of<Layout>(a), &result = of<Layout>(d);
  const auto& preferred = of<Preference>(preference);
  *found = 0;
  if (const char* why = mismatch(of_product, of_a, of<Layout>(b), of<Layout>(c), result)) {
    ptx::report(std::string("cuBLASLt: matrices that do not fit: ") + why);
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  const bool has_epilogue = of_product.epilogue != CUBLASLT_EPILOGUE_DEFAULT;
  if (has_epilogue && (result.type == CUDA_R_64F || ptx::setting("PTX_EPILOGUES", 1) == 0))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (ptx::setting("PTX_PRODUCTS", 2) < (preferred.reductions != 0 ? 2u : 1u)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (wanted < 1) return CUBLAS_STATUS_INVALID_VALUE;
  const std::int64_t k = of_product.op_a != CUBLAS_OP_N ? of_a.rows : of_a.columns;
  Algorithm algorithm{of_product.epilogue, {}, result.rows, result.columns, k, 0};
  std::copy_n(preferred.align, 4, algorithm.align);
  if (k > 64)
    algorithm.workspace =
        std::min<std::int64_t>(static_cast<std::int64_t>(preferred.workspace), result.rows * result.columns * 4);
  results[0] = {};
  std::memcpy(&results[0].algo, &algorithm, sizeof algorithm);
  results[0].workspaceSize = static_cast<std::size_t>(algorithm.workspace);
  results[0].state = CUBLAS_STATUS_SUCCESS;
  return *found = 1, CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t description, const void* alpha, const void* A,
                              cublasLtMatrixLayout_t a, const void* B, cublasLtMatrixLayout_t b, const void* beta,
                              const void* C, cublasLtMatrixLayout_t c, void* D, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t* algo, void* workspace, std::size_t workspace_bytes,
                              cudaStream_t stream) {
  const bool is_double = of<Layout>(d).type == CUDA_R_64F;
  const auto number = [&](const void* at) {  // on the host, when the call is made
    return is_double ? *static_cast<const double*>(at) : *static_cast<const float*>(at);
  };
  const Product product{of<Description>(description),
                        {of<Layout>(a), of<Layout>(b), of<Layout>(c), of<Layout>(d)},
                        A,
                        B,
                        C,
                        D,
                        workspace,
                        workspace_bytes,
                        number(alpha),
                        number(beta)};
  Algorithm algorithm{};
  std::memcpy(&algorithm, algo, sizeof algorithm);
  const Layout& of_a = product.layouts[0];
  const std::int64_t k = product.description.op_a != CUBLAS_OP_N ? of_a.rows : of_a.columns;
  if (algorithm.m != product.layouts[3].rows || algorithm.n != product.layouts[3].columns || algorithm.k != k ||
      algorithm.epilogue != static_cast<std::uint32_t>(product.description.epilogue))
    ptx::report("cublasLtMatmul: an algorithm that was chosen for another product");
  if (static_cast<std::int64_t>(workspace_bytes) < algorithm.workspace)
    ptx::report("cublasLtMatmul: a smaller workspace than the algorithm needs");
  check_alignment(A, algorithm.align[0], "A"), check_alignment(B, algorithm.align[1], "B");
  check_alignment(C, algorithm.align[2], "C"), check_alignment(D, algorithm.align[3], "D");
  if (workspace_bytes > 0) check_alignment(workspace, 256, "the workspace");
  ptx::enqueue(stream, [product] { product.run(); });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
