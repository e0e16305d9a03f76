// SPDX-License-Identifier: MIT
#include "engine/kernels/select.h"

namespace ab {
namespace {

using namespace kernels;

std::int64_t parts(std::int64_t n, std::int64_t size) { return (n + size - 1) / size; }

template <class T> Tensor room_for(std::int64_t count, Device device) {
  return Tensor::zeros({count * static_cast<std::int64_t>(sizeof(T))}, DType::uint8, device);
}
template <class T> T* as(const Tensor& bytes) { return reinterpret_cast<T*>(bytes.data<std::uint8_t>()); }

struct Digit {
  int shift, width;
};
/// The 31 bits of a magnitude, from the highest on.
constexpr Digit kWideDigits[] = {{20, 11}, {10, 10}, {0, 10}};
constexpr Digit kNarrowDigits[] = {{28, 3}, {24, 4}, {20, 4}, {16, 4}, {12, 4}, {8, 4}, {4, 4}, {0, 4}};
constexpr std::int64_t kMostBins = 2048, kMostNarrowBins = 16;

}  // namespace

Selector::Selector(std::int64_t n, Device device) : n_(n), device_(device) {
  AB_CHECK(n >= 1 && n < std::int64_t{1} << 31, "a selection from {} elements: between 1 and 2^31 can be", n);
  const std::int64_t chunks = parts(n, kSelectChunk), bins = device.is_like_cpu() ? kMostBins : kMostNarrowBins;
  cut_ = room_for<Cut>(1, device);
  search_ = room_for<SampleSearch>(1, device);
  counts_ = room_for<std::int64_t>(chunks * bins, device);
  totals_ = room_for<std::int64_t>(bins, device);
  blocks_ = room_for<CutCount>(parts(n, kSelectBlock), device);
  chunks_ = room_for<CutCount>(chunks, device);
}

void Selector::check(const Tensor& x, std::int64_t k) const {
  AB_CHECK(x.numel() == n_ && x.device() == device_, "a selector for {} elements was given {}", n_, x.shape().str());
  AB_CHECK(k >= 1 && k <= n_, "{} of {} elements cannot be selected", k, n_);
}

void Selector::exact(const Tensor& x, std::int64_t k, std::uint32_t* indices) const {
  static_assert(sizeof(RadixSearch) <= sizeof(SampleSearch));
  check(x, k);
  const std::int64_t chunks = parts(n_, kSelectChunk);
  RadixSearch* const search = as<RadixSearch>(search_);
  for_each_index(device_, 1, StartRadix{search, k});
  const auto next = [&](Digit digit) {
    const auto [shift, width] = digit;
    std::int64_t *const counts = as<std::int64_t>(counts_), *const totals = as<std::int64_t>(totals_);
    for_each_row(device_, chunks, kSelectChunk, CountDigits{x.data<float>(), search, counts, n_, shift, width});
    for_each_row(device_, 1 << width, chunks, SumBins{counts, totals, chunks, 1 << width});
    for_each_index(device_, 1, ChooseDigit{totals, search, as<Cut>(cut_), shift, width});
  };
  if (device_.is_like_cpu())
    for (const Digit& digit : kWideDigits) next(digit);
  else
    for (const Digit& digit : kNarrowDigits) next(digit);
  write(x, k, indices);
}

void Selector::multi_sampling(const Tensor& x, std::int64_t k, int rounds, const Philox& random, std::uint64_t draw,
                              std::uint32_t* indices) const {
  constexpr double kDense = 0.3;  // above it the threshold lies below the mean
  check(x, k);
  const std::int64_t chunks = parts(n_, kSelectChunk);
  const Tensor magnitudes({3 * chunks}, DType::float64, device_);
  SampleSearch* const search = as<SampleSearch>(search_);
  std::int64_t* const found = as<std::int64_t>(counts_);
  for_each_row(device_, chunks, kSelectChunk, ChunkMagnitudes{x.data<float>(), magnitudes.data<double>(), n_});
  const bool dense = static_cast<double>(k) > kDense * static_cast<double>(n_);
  for_each_index(device_, 1, StartSearch{magnitudes.data<double>(), search, chunks, n_, dense});
  for (int round = 0; round < rounds; ++round) {
    for_each_row(device_, chunks, kSelectChunk, ChunkCount{x.data<float>(), search, found, n_});
    for_each_row(device_, 1, chunks, NextRound{found, search, chunks, k});
  }
  for_each_index(device_, 1, CutOfSearch{search, as<Cut>(cut_), k, random, draw});
  write(x, k, indices);
}

void Selector::write(const Tensor& x, std::int64_t k, std::uint32_t* indices) const {
  const std::int64_t blocks = parts(n_, kSelectBlock), chunks = parts(n_, kSelectChunk);
  CutCount *const of_blocks = as<CutCount>(blocks_), *const of_chunks = as<CutCount>(chunks_);
  const Cut* const cut = as<Cut>(cut_);
  for_each_row(device_, blocks, kSelectBlock, CountBlock{x.data<float>(), cut, of_blocks, n_});
  for_each_row(device_, chunks, kSelectChunk / kSelectBlock, ScanBlocks{of_blocks, of_chunks, blocks});
  for_each_row(device_, 1, chunks, ScanChunks{of_chunks, chunks});
  for_each_row(device_, blocks, kSelectBlock,
               WriteSelected{x.data<float>(), cut, of_blocks, of_chunks, indices, n_, k});
}

}  // namespace ab
