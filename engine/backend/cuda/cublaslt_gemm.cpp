// SPDX-License-Identifier: MIT
#include "engine/backend/cuda/cublaslt_gemm.h"

#include <vector>

#include "engine/backend/cuda/libraries.h"

namespace ab::cuda {
namespace {

// NVIDIA's advice for Hopper; with less, the fastest split-k algorithms drop out.
constexpr std::size_t kGemmWorkspaceBytes = std::size_t{32} << 20;
constexpr std::size_t kLastWorkspaceBytes = std::size_t{256} << 20;  // where no algorithm does with that
constexpr std::size_t kTimedAlgorithms = 16;

cudaDataType_t cuda_type(DType dtype) {
  switch (dtype) {
    case DType::float32: return CUDA_R_32F;
    case DType::bfloat16: return CUDA_R_16BF;
    case DType::float16: return CUDA_R_16F;
    case DType::float64: return CUDA_R_64F;
    default: throw Error(ErrorKind::config, fmt::format("gemm: a GPU cannot multiply {}", name_of(dtype)));
  }
}

/// Describes the row-major rows×columns matrices of a batch in cuBLASLt's terms: their transposes, by columns.
CublasLtMatrixLayout row_major(const GemmKey& key, std::int64_t rows, std::int64_t columns, GemmStrides strides) {
  cublasLtMatrixLayout_t raw = nullptr;
  AB_CUDA(cublasLtMatrixLayoutCreate(&raw, cuda_type(key.dtype), static_cast<std::uint64_t>(columns),
                                     static_cast<std::uint64_t>(rows), strides.row > 0 ? strides.row : columns));
  CublasLtMatrixLayout layout(raw);
  if (key.batch > 1) {
    const auto count = static_cast<std::int32_t>(key.batch);
    AB_CUDA(cublasLtMatrixLayoutSetAttribute(raw, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
    AB_CUDA(cublasLtMatrixLayoutSetAttribute(raw, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &strides.batch,
                                             sizeof strides.batch));
  }
  return layout;
}

cublasComputeType_t cublas_compute_type(const GemmKey& key) {
  if (key.dtype == DType::float64) return CUBLAS_COMPUTE_64F;
  return key.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

CublasLtMatmulDesc matmul_desc(const GemmKey& key) {
  cublasLtMatmulDesc_t raw = nullptr;
  AB_CUDA(
      cublasLtMatmulDescCreate(&raw, cublas_compute_type(key), key.dtype == DType::float64 ? CUDA_R_64F : CUDA_R_32F));
  CublasLtMatmulDesc desc(raw);
  // The operands have traded places: cuBLASLt's first is our B.
  const cublasOperation_t of_first = key.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t of_second = key.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  AB_CUDA(cublasLtMatmulDescSetAttribute(raw, CUBLASLT_MATMUL_DESC_TRANSA, &of_first, sizeof of_first));
  AB_CUDA(cublasLtMatmulDescSetAttribute(raw, CUBLASLT_MATMUL_DESC_TRANSB, &of_second, sizeof of_second));
  return desc;
}

CublasLtMatmulPreference preference(const GemmKey& key, bool any) {
  cublasLtMatmulPreference_t raw = nullptr;
  AB_CUDA(cublasLtMatmulPreferenceCreate(&raw));
  CublasLtMatmulPreference wanted(raw);
  const auto set = [raw](cublasLtMatmulPreferenceAttributes_t name, auto value) {
    AB_CUDA(cublasLtMatmulPreferenceSetAttribute(raw, name, &value, sizeof value));
  };
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, any ? kLastWorkspaceBytes : kGemmWorkspaceBytes);
  // Parts of a product are added up in the type that it is computed in, not in that of C, and in a fixed order.
  if (!any) set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, std::uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.align_b);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.align_a);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.align_c);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.align_c);
  return wanted;
}

}  // namespace

CublasLtGemm::CublasLtGemm(const GemmKey& key, cublasLtHandle_t handle)
    : dtype_(key.dtype),
      operation_(matmul_desc(key)),
      a_(row_major(key, key.transpose_a ? key.k : key.m, key.transpose_a ? key.m : key.k, key.strides_a)),
      b_(row_major(key, key.transpose_b ? key.n : key.k, key.transpose_b ? key.k : key.n, key.strides_b)),
      c_(row_major(key, key.m, key.n, key.strides_c)) {
  add_candidates(handle, key, key.epilogue);
  if (key.epilogue != kNoEpilogue && (candidates_.empty() || key.choice == PlanChoice::timed))
    add_candidates(handle, key, kNoEpilogue);
  if (candidates_.empty()) add_candidates(handle, key, kNoEpilogue, true);
  AB_CHECK_KIND(
      communication, !candidates_.empty(),
      "cuBLASLt has no algorithm for a {} matrix product {}×{}×{} (batch {}, aligned to {}, {} and {} bytes); "
      "try another precision or batch size",
      name_of(key.dtype), key.m, key.n, key.k, key.batch, key.align_a, key.align_b, key.align_c);
}

void CublasLtGemm::add_candidates(cublasLtHandle_t handle, const GemmKey& key, cublasLtEpilogue_t epilogue, bool any) {
  // No algorithm is looked for without an address of the bias; every call brings its own.
  set_epilogue(epilogue, reinterpret_cast<void*>(kBiasAlignment));
  std::vector<cublasLtMatmulHeuristicResult_t> results(key.choice == PlanChoice::timed ? kTimedAlgorithms : 1);
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      handle, operation_.get(), b_.get(), a_.get(), c_.get(), c_.get(), preference(key, any).get(),
      static_cast<int>(results.size()), results.data(), &found);
  if (status != CUBLAS_STATUS_SUCCESS) return;
  results.resize(static_cast<std::size_t>(found));
  for (const cublasLtMatmulHeuristicResult_t& result : results)
    if (result.state == CUBLAS_STATUS_SUCCESS) candidates_.push_back({result, epilogue});
}

void CublasLtGemm::set_epilogue(cublasLtEpilogue_t epilogue, void* bias) {
  if (epilogue == kNoEpilogue) bias = nullptr;
  const auto set = [this](cublasLtMatmulDescAttributes_t name, auto value) {
    AB_CUDA(cublasLtMatmulDescSetAttribute(operation_.get(), name, &value, sizeof value));
  };
  set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
}

void CublasLtGemm::execute(cublasLtHandle_t handle, double alpha, const void* a, const void* b, double beta,
                           const void* addend, void* c, void* bias, void* workspace, cudaStream_t stream,
                           std::size_t i) {
  set_epilogue(candidates_[i].epilogue, bias);
  const auto alpha32 = static_cast<float>(alpha), beta32 = static_cast<float>(beta);
  const bool is_double = dtype_ == DType::float64;
  const void* alpha_of_type = is_double ? static_cast<const void*>(&alpha) : &alpha32;
  const void* beta_of_type = is_double ? static_cast<const void*>(&beta) : &beta32;
  AB_CUDA(cublasLtMatmul(handle, operation_.get(), alpha_of_type, b, b_.get(), a, a_.get(), beta_of_type, addend,
                         c_.get(), c, c_.get(), &candidates_[i].found.algo, workspace, workspace_bytes(i), stream));
}

}  // namespace ab::cuda
