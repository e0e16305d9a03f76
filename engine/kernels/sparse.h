#pragma once
// SPDX-License-Identifier: MIT
//
// Some elements of a vector, by their indices: taken out, added in, set to zero. Indices are std::uint32_t in device
// memory and differ within a call.

#include <bit>

#include "engine/kernels/finite_check.h"

namespace ab {

/// k values and their indices as they travel: 4·k bytes of float32, then 4·k of std::uint32_t.
struct SparseView {
  std::int64_t k = 0;
  float* values = nullptr;
  std::uint32_t* indices = nullptr;
};
inline constexpr std::int64_t kSparseEntryBytes = 8;
/// Number `part` of those that lie one behind the other in `bytes`, k entries each.
SparseView sparse_part(const Tensor& bytes, std::int64_t k, std::int64_t part = 0);

/// values[j] = x[indices[j]] for j < count; all NaN if `marked` has found something that is not finite. The rest of the k
/// entries become zeros at index 0.
void take_values(const Tensor& x, const SparseView& entries, std::int64_t count, const FiniteCheck& marked);
/// y[indices[j]] += factor · values[j]
void add_values(const SparseView& entries, double factor, const Tensor& y);
/// x[indices[j]] = 0 for j < count, unless `check` has failed.
void clear_taken(const Tensor& x, const SparseView& entries, std::int64_t count, const FiniteCheck& check);
/// indices[j] += by for j < count
void shift_indices(Device device, std::uint32_t* indices, std::int64_t count, std::int64_t by);
/// Whether all values of `parts` parts are finite counts for `check`.
void check_values(const Tensor& bytes, std::int64_t k, std::int64_t parts, const FiniteCheck& check);

namespace kernels {

struct TakeValue {
  const float* x;
  const double* marked;
  SparseView entries;
  std::int64_t count;
  AB_HD void operator()(std::int64_t j) const {
    if (j >= count) entries.indices[j] = 0;
    entries.values[j] = (j < count ? x[entries.indices[j]] : 0.0f) + static_cast<float>(*marked);
  }
};

/// Zeros are left out: those that only fill up share an index.
struct AddValue {
  SparseView entries;
  float factor;
  float* y;
  std::int64_t n;
  AB_HD void operator()(std::int64_t j) const {
    if (entries.values[j] != 0 && entries.indices[j] < n) y[entries.indices[j]] += factor * entries.values[j];
  }
};

struct ClearTaken {
  float* x;
  const std::uint32_t* indices;
  const double* failed;
  AB_HD void operator()(std::int64_t j) const {
    if (*failed == 0) x[indices[j]] = 0;
  }
};

struct ShiftIndex {
  std::uint32_t* indices;
  std::uint32_t by;
  AB_HD void operator()(std::int64_t j) const { indices[j] += by; }
};

/// sums[part] = Σ 0 · values
struct CheckPart {
  const std::uint8_t* bytes;
  std::int64_t k;
  double* sums;
  template <class Team> AB_HD void operator()(const Team& team, std::int64_t part) const {
    const auto* const values = reinterpret_cast<const float*>(bytes + part * kSparseEntryBytes * k);
    const double sum = lane_sum<double>(
        team, k, [](double v) { return v * 0; }, values);
    if (team.lane() == 0) sums[part] = sum;
  }
};

}  // namespace kernels

// One element of every chunk of a vector: the largest by magnitude, one pass and no sort (ScaleCom, arXiv 2104.11125).
// A chunk has `rate` neighbouring elements, the last of a vector may have fewer. Where in its chunk the element lies
// travels as one byte, or as two (the lower first) where rate > 256.

struct ChunkedVector {
  std::int64_t elements = 0, rate = 1;

  std::int64_t chunks() const { return (elements + rate - 1) / rate; }
  std::int64_t offset_bytes() const { return chunks() * (rate > 256 ? 2 : 1); }
};
inline constexpr std::int64_t kMostChunkRate = 65536;

/// offsets: uint8 [offset_bytes()]. Among equal elements the first. x: float32 [elements]
void largest_of_chunks(const ChunkedVector& v, const Tensor& x, const Tensor& offsets);
/// values[c] = the element of chunk c that `offsets` names; all NaN if `marked` has found something that is not finite.
/// values: float32 [chunks()]
void take_of_chunks(const ChunkedVector& v, const Tensor& x, const Tensor& offsets, const FiniteCheck& marked,
                    const Tensor& values);
/// The low-pass memory of ScaleCom, with p in x on entry: memory ← (1−β)·memory + β·(p less the elements taken), unless
/// `check` has failed; then x becomes zero but for `values` where elements were taken.
void settle_chunks(const ChunkedVector& v, const Tensor& offsets, const Tensor& values, double beta,
                   const FiniteCheck& check, const Tensor& memory, const Tensor& x);

namespace kernels {

/// Where a chunk lies, and its element.
struct ChunkPlace {
  std::int64_t elements, rate;
  std::uint8_t* offsets;

  AB_HD std::int64_t begin(std::int64_t chunk) const { return chunk * rate; }
  AB_HD std::int64_t count(std::int64_t chunk) const {
    const std::int64_t left = elements - chunk * rate;
    return left < rate ? left : rate;
  }
  AB_HD std::int64_t offset(std::int64_t chunk) const {
    const std::int64_t at = rate > 256 ? offsets[2 * chunk] + 256 * offsets[2 * chunk + 1] : offsets[chunk];
    return at < count(chunk) ? at : 0;
  }
  AB_HD void set_offset(std::int64_t chunk, std::int64_t at) const {
    if (rate <= 256) {
      offsets[chunk] = static_cast<std::uint8_t>(at);
    } else {
      offsets[2 * chunk] = static_cast<std::uint8_t>(at & 255);
      offsets[2 * chunk + 1] = static_cast<std::uint8_t>(at >> 8);
    }
  }
};

/// One chunk by a team.
struct LargestOfChunk {
  ChunkPlace place;
  const float* x;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t chunk) const {
    const float* const from = x + place.begin(chunk);
    const std::int64_t count = place.count(chunk);
    // The magnitude above, and below it what is largest for the first of equals.
    const auto key = [&](std::int64_t i) {
      const auto magnitude = static_cast<std::int64_t>(std::bit_cast<std::uint32_t>(from[i]) & 0x7fffffffu);
      return magnitude << 32 | (kMostChunkRate - i);
    };
    std::int64_t best = 0;
    for (std::int64_t i = team.lane(); i < count; i += team.size()) {
      const std::int64_t here = key(i);
      best = best < here ? here : best;
    }
    best = team.max(best);
    if (team.lane() == 0) place.set_offset(chunk, kMostChunkRate - (best & 0xffffffff));
  }
};

struct TakeOfChunk {
  ChunkPlace place;
  const float* x;
  const double* marked;
  AB_HD float operator()(std::int64_t chunk) const {
    return x[place.begin(chunk) + place.offset(chunk)] + static_cast<float>(*marked);
  }
};

struct SettleChunk {
  ChunkPlace place;
  const float* values;
  float beta;
  const double* failed;
  float *memory, *x;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t chunk) const {
    const std::int64_t begin = place.begin(chunk), count = place.count(chunk), taken = place.offset(chunk);
    for (std::int64_t i = team.lane(); i < count; i += team.size()) {
      float& m = memory[begin + i];
      float& p = x[begin + i];
      if (*failed == 0) m = (1 - beta) * m + (i == taken ? 0.0f : beta * p);
      p = i == taken ? values[chunk] : 0.0f;
    }
  }
};

}  // namespace kernels
}  // namespace ab
