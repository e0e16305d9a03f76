// SPDX-License-Identifier: MIT
#include "engine/kernels/optim.h"

#include "engine/kernels/lars.h"

namespace ab {

void measure_grad_norm(const SliceTable& table, double max_norm, double* partial, GradNorm* result) {
  for_each_row(table.device, table.count, kSliceElements, kernels::SliceSquares{table.slices, partial});
  for_each_row(table.device, 1, table.count, kernels::FinishNorm{partial, table.count, max_norm, result});
}

void update_all(const SliceTable& table, const SgdRule& rule) {
  for_each_row(table.device, table.count, kSliceElements,
               kernels::UpdateSlices<kernels::SgdUpdate, SgdRule>{table.slices, rule});
}

void update_all(const SliceTable& table, const AdamWRule& rule) {
  for_each_row(table.device, table.count, kSliceElements,
               kernels::UpdateSlices<kernels::AdamWUpdate, AdamWRule>{table.slices, rule});
}

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
