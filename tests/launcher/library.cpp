// SPDX-License-Identifier: MIT
//
// Stands in for a CUDA library in launcher_test.
extern "C" int stand_in() { return 0; }
