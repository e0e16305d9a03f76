#pragma once
// SPDX-License-Identifier: MIT
//
// The Fortran symbols of BLAS and LAPACK that we call (OpenBLAS's OpenMP build; matrices are column-major), and the kernels that
// OpenBLAS runs for them.

#include <string>

extern "C" {
/// C = alpha · op(A) · op(B) + beta · C
void sgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k, const float* alpha,
            const float* a, const int* lda, const float* b, const int* ldb, const float* beta, float* c,
            const int* ldc);
void dgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k, const double* alpha,
            const double* a, const int* lda, const double* b, const int* ldb, const double* beta, double* c,
            const int* ldc);
/// One triangle of C = alpha · A · Aᵀ + beta · C
void dsyrk_(const char* uplo, const char* trans, const int* n, const int* k, const double* alpha, const double* a,
            const int* lda, const double* beta, double* c, const int* ldc);
/// Eigenvalues (ascending) and eigenvectors of a symmetric matrix, by divide and conquer
void dsyevd_(const char* jobz, const char* uplo, const int* n, double* a, const int* lda, double* w, double* work,
             const int* lwork, int* iwork, const int* liwork, int* info);
/// The Cholesky decomposition, and the inverse of a triangular matrix, each in place
void dpotrf_(const char* uplo, const int* n, double* a, const int* lda, int* info);
void dtrtri_(const char* uplo, const char* diag, const int* n, double* a, const int* lda, int* info);
/// Householder QR, and the explicit Q
void dgeqrf_(const int* m, const int* n, double* a, const int* lda, double* tau, double* work, const int* lwork,
             int* info);
void dorgqr_(const int* m, const int* n, const int* k, double* a, const int* lda, const double* tau, double* work,
             const int* lwork, int* info);
}

namespace ab::cpu {

/// OpenBLAS has all decompositions on the host. A release that is older than the processor falls back to its oldest kernels
/// ("Prescott": 0.3.21 on Xeons of 2023), which decompose two to three times as slowly (bench/svd_bench.cpp).
struct OpenBlasKernels {
  std::string running;  ///< OPENBLAS_CORETYPE, or what OpenBLAS found
  std::string better;   ///< a newer OPENBLAS_CORETYPE that this processor can run; empty where there is none
};
OpenBlasKernels openblas_kernels();

}  // namespace ab::cpu
