// SPDX-License-Identifier: MIT
#include "engine/kernels/lars.h"

namespace ab {

void update_all(const SliceTable& table, const LarsTable& tensors, const LarsRule& rule) {
  for_each_row(table.device, table.count, kSliceElements, kernels::LarsSquares{table.slices, tensors.squares});
  for_each_index(table.device, tensors.count, kernels::LarsRate{table.slices, tensors, rule});
  for_each_row(table.device, table.count, kSliceElements, kernels::LarsUpdate{table.slices, tensors, rule});
}

}  // namespace ab
