#pragma once
// SPDX-License-Identifier: MIT
//
// The functors of elementwise.h.

#include <cstdint>

#include "engine/core/dtype.h"

namespace ab::kernels {

template <class C> struct Add {
  AB_HD C operator()(C a, C b) const { return a + b; }
};

template <class C> struct Axpy {
  C alpha;
  AB_HD C operator()(C x, C y) const { return alpha * x + y; }
};

template <class C> struct Scale {
  C factor;
  AB_HD C operator()(C t) const { return factor * t; }
};

template <class C> struct ScaleBy {
  const float* factor;
  bool inverse;
  AB_HD C operator()(C t) const { return inverse ? t / static_cast<C>(*factor) : t * static_cast<C>(*factor); }
};

template <class C> struct Sign {
  AB_HD C operator()(C t) const { return static_cast<C>((t > 0) - (t < 0)) + t * 0; }
};

template <class C> struct Square {
  AB_HD C operator()(C x) const { return x * x; }
};

template <class C> struct TimesZero {
  AB_HD C operator()(C x) const { return x * C{0}; }
};

template <class C> struct Fill {
  C value;
  AB_HD C operator()(std::int64_t) const { return value; }
};

template <class C> struct Same {
  AB_HD C operator()(C x) const { return x; }
};

/// One square tile per team, so that both sides stay within a few cache lines.
template <class T> struct Transpose {
  static constexpr std::int64_t kTile = 32;
  const T* x;
  T* y;
  std::int64_t rows, columns;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t tile) const {
    const std::int64_t tiles_across = (columns + kTile - 1) / kTile;
    const std::int64_t top = tile / tiles_across * kTile, left = tile % tiles_across * kTile;
    for (std::int64_t e = team.lane(); e < kTile * kTile; e += team.size()) {
      const std::int64_t i = top + e % kTile, j = left + e / kTile;
      if (i < rows && j < columns) y[j * rows + i] = x[i * columns + j];
    }
  }
};

/// One element per index.
struct ScaleLines {
  float* t;
  const float* scale;
  std::int64_t columns;
  bool rows;  // a factor for each row, or for each column
  AB_HD void operator()(std::int64_t i) const { t[i] *= scale[rows ? i / columns : i % columns]; }
};

}  // namespace ab::kernels
