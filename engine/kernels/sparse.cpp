// SPDX-License-Identifier: MIT
#include "engine/kernels/sparse.h"

#include "engine/kernels/map.h"

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

namespace {

kernels::ChunkPlace place_of(const ChunkedVector& v, const Tensor& offsets) {
  AB_ASSERT(offsets.numel() == v.offset_bytes() && v.rate >= 1 && v.rate <= kMostChunkRate);
  return {v.elements, v.rate, offsets.data<std::uint8_t>()};
}

template <class K> struct ByOneLane {
  K kernel;
  AB_HD void operator()(std::int64_t row) const { kernel(SerialTeam{}, row); }
};

/// A chunk that does not fill a warp has a lane of its own: a GPU starts millions of blocks slowly.
template <class K> void for_each_chunk(Device device, const ChunkedVector& v, const K& kernel) {
  constexpr std::int64_t warp = 32;
  if (v.rate < warp) for_each_index(device, v.chunks(), ByOneLane<K>{kernel}, v.rate);
  else for_each_row(device, v.chunks(), v.rate, kernel);
}

}  // namespace

void largest_of_chunks(const ChunkedVector& v, const Tensor& x, const Tensor& offsets) {
  for_each_chunk(x.device(), v, kernels::LargestOfChunk{place_of(v, offsets), x.data<float>()});
}

void take_of_chunks(const ChunkedVector& v, const Tensor& x, const Tensor& offsets, const FiniteCheck& marked,
                    const Tensor& values) {
  map(x.device(), v.chunks(), values.data<float>(),
      kernels::TakeOfChunk{place_of(v, offsets), x.data<float>(), marked.failed().data<double>()});
}

void settle_chunks(const ChunkedVector& v, const Tensor& offsets, const Tensor& values, double beta,
                   const FiniteCheck& check, const Tensor& memory, const Tensor& x) {
  for_each_chunk(x.device(), v,
                 kernels::SettleChunk{place_of(v, offsets), values.data<float>(), static_cast<float>(beta),
                                      check.failed().data<double>(), memory.data<float>(), x.data<float>()});
}

}  // namespace ab
