#pragma once
// SPDX-License-Identifier: MIT
//
// Some elements of a vector, by their indices: taken out, added in, set to zero. Indices are std::uint32_t in device
// memory and differ within a call.

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
}  // namespace ab
