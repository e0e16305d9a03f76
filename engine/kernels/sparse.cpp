// SPDX-License-Identifier: MIT
#include "engine/kernels/sparse.h"

namespace ab {

SparseView sparse_part(const Tensor& bytes, std::int64_t k, std::int64_t part) {
  AB_ASSERT(bytes.numel() >= (part + 1) * kSparseEntryBytes * k);
  std::uint8_t* const begin = bytes.data<std::uint8_t>() + part * kSparseEntryBytes * k;
  return {k, reinterpret_cast<float*>(begin), reinterpret_cast<std::uint32_t*>(begin + 4 * k)};
}

void take_values(const Tensor& x, const SparseView& entries, std::int64_t count, const FiniteCheck& marked) {
  for_each_index(x.device(), entries.k,
                 kernels::TakeValue{x.data<float>(), marked.failed().data<double>(), entries, count});
}

void add_values(const SparseView& entries, double factor, const Tensor& y) {
  for_each_index(y.device(), entries.k,
                 kernels::AddValue{entries, static_cast<float>(factor), y.data<float>(), y.numel()});
}

void clear_taken(const Tensor& x, const SparseView& entries, std::int64_t count, const FiniteCheck& check) {
  for_each_index(x.device(), count,
                 kernels::ClearTaken{x.data<float>(), entries.indices, check.failed().data<double>()});
}

void shift_indices(Device device, std::uint32_t* indices, std::int64_t count, std::int64_t by) {
  for_each_index(device, count, kernels::ShiftIndex{indices, static_cast<std::uint32_t>(by)});
}

void check_values(const Tensor& bytes, std::int64_t k, std::int64_t parts, const FiniteCheck& check) {
  const Tensor sums({parts}, DType::float64, bytes.device());
  for_each_row(bytes.device(), parts, k, kernels::CheckPart{bytes.data<std::uint8_t>(), k, sums.data<double>()});
  check.add_sums(sums);
}

}  // namespace ab
