// SPDX-License-Identifier: MIT
#include "engine/ops/flops.h"

namespace ab {

static thread_local std::int64_t flops_of_thread = 0;

std::int64_t flops_so_far() { return flops_of_thread; }
void count_multiplications(std::int64_t count) { flops_of_thread += 2 * count; }

}  // namespace ab
