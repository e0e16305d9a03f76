#pragma once
// SPDX-License-Identifier: MIT
//
// How a lane reaches a block of neighbouring elements. A GPU needs accesses of 16 bytes per lane for its full
// bandwidth: there a block is a Pack, which moves between memory and registers whole. A CPU's compiler makes
// vectors out of plain loops, so there the same lines read and write memory element by element.
//
//   const auto xs = load(x + at, count);
//   Store ys(y + at, count);
//   for (int j = 0; j < count; ++j) ys[j] = static_cast<T>(2 * xs[j]);
//
// `count` says how many and which way: Packed<N>, or anything else that converts to int.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "engine/core/dtype.h"

namespace ab {

/// The most that a lane of a GPU moves in one access.
inline constexpr int kPackBytes = 16;
/// How many neighbours that is where elements of all these types are read and written together; one where none are.
template <class... T> inline constexpr int kPackWidth = kPackBytes / static_cast<int>(std::max({sizeof(T)...}));
template <> inline constexpr int kPackWidth<> = 1;

/// N neighbours that can be reached as one Pack: see packable().
template <int N> struct Packed : std::integral_constant<int, N> {};

template <class T, int N> struct alignas(std::min(kPackBytes, N* static_cast<int>(sizeof(T)))) Pack { T v[N]; };

/// Whether rows of `stride` elements that begin at these addresses (null: not used) consist of aligned Packs of N.
template <int N, class... T> AB_HD bool packable(std::int64_t stride, const T*... rows) {
  return stride % N == 0 && (... && (reinterpret_cast<std::uintptr_t>(rows) % alignof(Pack<T, N>) == 0));
}

/// The type in which a loaded T arrives: the computing type, or T itself for integers.
template <class T> using loaded_t = std::conditional_t<std::is_integral_v<T>, T, compute_t<T>>;

/// The result of load(): values [0, count), read where they are used.
template <class T, class Count> struct Loaded {
  const T* from;
  AB_HD loaded_t<T> operator[](std::int64_t j) const { return static_cast<loaded_t<T>>(from[j]); }
};
template <class T, int N> struct Loaded<T, Packed<N>> {
  Pack<T, N> pack;
  AB_HD loaded_t<T> operator[](std::int64_t j) const { return static_cast<loaded_t<T>>(pack.v[j]); }
};

template <class T, class Count> AB_HD Loaded<T, Count> load(const T* from, Count) { return {from}; }
template <class T, int N> AB_HD Loaded<T, Packed<N>> load(const T* from, Packed<N>) {
  return {*reinterpret_cast<const Pack<T, N>*>(from)};
}

/// Elements [0, count) to be assigned, each of them. They are in memory when the Store goes out of scope.
template <class T, class Count> class Store {
 public:
  AB_HD Store(T* to, Count) : to_(to) {}
  AB_HD T& operator[](std::int64_t j) const { return to_[j]; }

 private:
  T* to_;
};
template <class T, int N> class Store<T, Packed<N>> {
 public:
  AB_HD Store(T* to, Packed<N>) : to_(to) {}
  AB_HD ~Store() { *reinterpret_cast<Pack<T, N>*>(to_) = pack_; }
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  AB_HD T& operator[](std::int64_t j) { return pack_.v[j]; }

 private:
  T* to_;
  Pack<T, N> pack_;
};

/// f of element i, whose values are `x`: f(x, …), or f(i, x, …) when f takes the index.
template <class F, class... X> AB_HD auto apply_at(const F& f, std::int64_t i, X... x) {
  if constexpr (std::is_invocable_v<const F&, std::int64_t, X...>) return f(i, x...);
  else return f(x...);
}

/// y[i] = f(xs[i], …) for i in [begin, begin + count), where `xs` are loaded.
template <class To, class Count, class F, class... X>
AB_HD void assign_block(To* y, std::int64_t begin, Count count, const F& f, const X&... xs) {
  Store ys(y + begin, count);
  for (std::int64_t j = 0; j < count; ++j) ys[j] = static_cast<To>(apply_at(f, begin + j, xs[j]...));
}

}  // namespace ab
