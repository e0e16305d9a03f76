#pragma once
// SPDX-License-Identifier: MIT
//
// The references of compress_bench: the same results by the standard library, LAPACK and plain loops, on one
// thread.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "engine/core/check.h"

extern "C" {
void sgeqrf_(const int* m, const int* n, float* a, const int* lda, float* tau, float* work, const int* lwork,
             int* info);
void sorgqr_(const int* m, const int* n, const int* k, float* a, const int* lda, const float* tau, float* work,
             const int* lwork, int* info);
}

namespace ab::plain {

/// Positions of `k` elements, as Selector writes them.
class Selection {
 public:
  Selection(std::int64_t n, std::int64_t k) : magnitudes_(static_cast<std::size_t>(n)), k_(k) {}

  /// std::nth_element over a copy of |x|, then one pass that takes what is above, and of equal elements the first.
  void by_nth_element(const float* x, std::uint32_t* indices) {
    std::transform(x, x + magnitudes_.size(), magnitudes_.begin(), [](float v) { return std::abs(v); });
    std::nth_element(magnitudes_.begin(), magnitudes_.begin() + (k_ - 1), magnitudes_.end(), std::greater<>());
    const float least = magnitudes_[static_cast<std::size_t>(k_ - 1)];
    const auto above = std::count_if(magnitudes_.begin(), magnitudes_.begin() + k_, [=](float v) { return v > least; });
    take(x, indices, least, k_ - above);
  }

  /// MSTopK as it is published: so many passes that count, then one that takes.
  void by_thresholds(const float* x, int rounds, std::uint32_t* indices) const {
    const auto n = magnitudes_.size();
    double sum = 0;
    float largest = 0;
    for (std::size_t i = 0; i < n; ++i) sum += std::abs(x[i]), largest = std::max(largest, std::abs(x[i]));
    const float anchor = static_cast<float>(sum / static_cast<double>(n));
    float low = 0, high = 1, from = 0;
    std::int64_t most_above = 0;
    for (int round = 0; round < rounds; ++round) {
      const float middle = (low + high) / 2, threshold = anchor + middle * (largest - anchor);
      const auto count = std::count_if(x, x + n, [=](float v) { return std::abs(v) >= threshold; });
      if (count <= k_) high = middle, most_above = std::max<std::int64_t>(most_above, count);
      else low = middle, from = threshold;
    }
    const float above = anchor + high * (largest - anchor);
    std::int64_t need = k_ - most_above;
    for (std::size_t i = 0; i < n; ++i) {
      const float v = std::abs(x[i]);
      if (v >= above || (v >= from && need-- > 0)) *indices++ = static_cast<std::uint32_t>(i);
    }
  }

 private:
  void take(const float* x, std::uint32_t* indices, float least, std::int64_t equal) const {
    for (std::size_t i = 0; i < magnitudes_.size(); ++i) {
      const float v = std::abs(x[i]);
      if (v > least || (v == least && equal-- > 0)) *indices++ = static_cast<std::uint32_t>(i);
    }
  }

  std::vector<float> magnitudes_;
  std::int64_t k_;
};

/// std::max_element of every chunk.
inline void largest_of_chunks(const float* x, std::int64_t n, std::int64_t rate, std::uint8_t* offsets) {
  for (std::int64_t begin = 0; begin < n; begin += rate) {
    const float *const from = x + begin, *const to = x + std::min(n, begin + rate);
    const auto at = std::max_element(from, to, [](float a, float b) { return std::abs(a) < std::abs(b); }) - from;
    *offsets++ = static_cast<std::uint8_t>(at & 255);
    if (rate > 256) *offsets++ = static_cast<std::uint8_t>(at >> 8);
  }
}

/// Orthonormal rows by modified Gram–Schmidt, once. rows: [count, length]
inline void gram_schmidt(float* rows, std::int64_t count, std::int64_t length) {
  const auto dot = [length](const float* a, const float* b) {
    float sum = 0;
    for (std::int64_t i = 0; i < length; ++i) sum += a[i] * b[i];
    return sum;
  };
  for (std::int64_t k = 0; k < count; ++k) {
    float* const row = rows + k * length;
    for (std::int64_t l = 0; l < k; ++l) {
      const float* const other = rows + l * length;
      const float along = dot(other, row);
      for (std::int64_t i = 0; i < length; ++i) row[i] -= along * other[i];
    }
    const float scale = 1 / std::sqrt(dot(row, row));
    for (std::int64_t i = 0; i < length; ++i) row[i] *= scale;
  }
}

/// Orthonormal rows by LAPACK's Householder QR.
inline void householder(float* rows, std::int64_t count, std::int64_t length) {
  const int m = static_cast<int>(length), n = static_cast<int>(count), size = 64 * n;
  std::vector<float> tau(static_cast<std::size_t>(n)), work(static_cast<std::size_t>(size));
  int info = 0;
  sgeqrf_(&m, &n, rows, &m, tau.data(), work.data(), &size, &info);
  AB_CHECK(info == 0, "sgeqrf: {}", info);
  sorgqr_(&m, &n, &n, rows, &m, tau.data(), work.data(), &size, &info);
  AB_CHECK(info == 0, "sorgqr: {}", info);
}

}  // namespace ab::plain
