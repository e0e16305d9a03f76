#pragma once
// SPDX-License-Identifier: MIT
//
// Which kernels OpenBLAS runs, that has all decompositions on the host. A release that is older than the processor falls back to
// the oldest ones ("Prescott": 0.3.21 on Xeons of 2023), which decompose two to three times as slowly
// (bench/svd_bench.cpp).

#include <string>

namespace ab::cpu {

struct OpenBlasKernels {
  std::string running;  ///< OPENBLAS_CORETYPE, or what OpenBLAS found
  std::string better;   ///< a newer OPENBLAS_CORETYPE that this processor can run; empty where there is none
};
OpenBlasKernels openblas_kernels();

}  // namespace ab::cpu
