#pragma once
// SPDX-License-Identifier: MIT
//
// AB_HD marks a function that is compiled for the host and, under nvcc, for the device as well.

#ifdef __CUDACC__
#define AB_HD __host__ __device__
#else
#define AB_HD
#endif
