#pragma once
// SPDX-License-Identifier: MIT
//
// The way back through a ReLU needs to know where its result y is above 0. Where rows are whole Packs, a GPU's forward
// pass writes that down as bits, a byte for every Pack of y (16 bytes), which the two backward passes read in place of y. A CPU
// has y in its caches and reads it again.

#include <cstdint>

#include "engine/kernels/lanes.h"

namespace ab::kernels {

enum class ReluGate : std::uint8_t {
  open,    ///< there was no ReLU
  result,  ///< y
  bits,    ///< bit e % kPackWidth<T> of byte e / kPackWidth<T> tells whether element e of y is above 0
};

/// y, or its bits, of T.
template <class T, ReluGate kGate> struct GateOf {
  const T* y;
  const std::uint8_t* bits;
};

/// For a block in each row of a group: whether element j of row u is above 0. Element `at` is the first of row 0.
template <class T, ReluGate kGate, class Count, int kRows> struct LoadedGates {
  const std::uint8_t* bits;
  std::int64_t at, stride;
  AB_HD bool operator()(int u, std::int64_t j) const {
    const std::int64_t e = at + u * stride + j;
    return (bits[e / kPackWidth<T>] >> (e % kPackWidth<T>)&1) != 0;
  }
};
template <class T, int kRows, int N> struct LoadedGates<T, ReluGate::bits, Packed<N>, kRows> {
  std::uint8_t bytes[kRows];
  AB_HD LoadedGates(const std::uint8_t* bits, std::int64_t at, std::int64_t stride) {
    static_assert(N == kPackWidth<T>);
    for (int u = 0; u < kRows; ++u) bytes[u] = bits[(at + u * stride) / N];
  }
  AB_HD bool operator()(int u, std::int64_t j) const { return (bytes[u] >> j & 1) != 0; }
};
template <class T, class Count, int kRows> struct LoadedGates<T, ReluGate::result, Count, kRows> {
  LoadedRows<T, Count, kRows> y;
  AB_HD bool operator()(int u, std::int64_t j) const { return y[u][j] > 0; }
};
template <class T, class Count, int kRows> struct LoadedGates<T, ReluGate::open, Count, kRows> {
  AB_HD bool operator()(int, std::int64_t) const { return true; }
};

template <class T, ReluGate kGate, class Count, int kRows>
AB_HD auto load_gates(const GateOf<T, kGate>& gate, std::int64_t at, std::int64_t stride, Count count,
                      std::integral_constant<int, kRows> group) {
  using Loaded = LoadedGates<T, kGate, Count, kRows>;
  if constexpr (kGate == ReluGate::open) return Loaded{};
  else if constexpr (kGate == ReluGate::result) return Loaded{load_rows(gate.y + at, stride, count, group)};
  else return Loaded{gate.bits, at, stride};
}

/// Collects the bits of a block of y that begins with a Pack, and writes them when it goes out of scope. Nothing, for other
/// gates.
template <class T, ReluGate kGate, int kWidth> struct StoredBits {
  AB_HD StoredBits(std::uint8_t*, std::int64_t /*at*/, std::int64_t /*count*/) {}
  AB_HD void set(std::int64_t /*j*/, bool /*above_zero*/) {}
};
template <class T, int kWidth> class StoredBits<T, ReluGate::bits, kWidth> {
 public:
  AB_HD StoredBits(std::uint8_t* bits, std::int64_t at, std::int64_t count)
      : to_(bits + at / kPackWidth<T>), count_(count / kPackWidth<T>) {}
  AB_HD ~StoredBits() {
    for (std::int64_t i = 0; i < count_; ++i) to_[i] = bytes_[i];
  }
  StoredBits(const StoredBits&) = delete;
  StoredBits& operator=(const StoredBits&) = delete;

  AB_HD void set(std::int64_t j, bool above_zero) {
    bytes_[j / kPackWidth<T>] |= static_cast<std::uint8_t>(static_cast<int>(above_zero) << (j % kPackWidth<T>));
  }

 private:
  std::uint8_t* to_;
  std::int64_t count_;
  std::uint8_t bytes_[kWidth < kPackWidth<T> ? 1 : kWidth / kPackWidth<T>] = {};
};

}  // namespace ab::kernels
