// SPDX-License-Identifier: MIT
#include "engine/kernels/lars.h"

namespace ab {

void find_rates(const SliceTable& table, const LarsTable& tensors, const LarsRange& range, const LarsRule& rule) {
  const std::int64_t slices = range.end_slice - range.first_slice;
  for_each_row(table.device, slices, kSliceElements,
               kernels::LarsSquares{table.slices, tensors.squares, range.first_slice});
  for_each_row(table.device, range.end - range.first, slices,
               kernels::LarsRate{table.slices, tensors, rule, range.first});
}

void update_all(const SliceTable& table, const LarsTable& tensors, const LarsRule& rule) {
  for_each_row(table.device, table.count, kSliceElements, kernels::LarsUpdate{table.slices, tensors, rule});
}

}  // namespace ab
