#pragma once
// SPDX-License-Identifier: MIT
//
// The functors of activation.h, which has their formulas.

#include <cmath>

#include "engine/core/random.h"
#include "engine/kernels/activation.h"
#include "engine/kernels/lanes.h"
#include "engine/kernels/special_functions.h"

namespace ab::kernels {

template <class C> struct Identity {
  AB_HD C operator()(C z) const { return z; }
};

template <class C> struct IdentityBackward {
  AB_HD C operator()(C dy, C /*y*/) const { return dy; }
};

template <class C> struct Relu {
  AB_HD C operator()(C z) const { return z < 0 ? C{0} : z; }
};

template <class C> struct ReluBackward {
  AB_HD C operator()(C dy, C y) const { return y > 0 ? dy : C{0}; }
};

template <class C> struct Gelu {
  AB_HD C operator()(C z) const { return z * normal_at(z).cdf; }
};

template <class C> struct GeluBackward {
  AB_HD C operator()(C dy, C z) const {
    const NormalAt<C> normal = normal_at(z);
    return dy * (normal.cdf + z * normal.density);
  }
};

/// run(functor), the forward functor of `activation`.
template <class C, class F> void dispatch_activation(Activation activation, F&& run) {
  switch (activation) {
    case Activation::none: return run(Identity<C>{});
    case Activation::relu: return run(Relu<C>{});
    case Activation::gelu: return run(Gelu<C>{});
  }
}

/// run(functor), the backward functor: (dy, ActivationGrad::saved) → dz.
template <class C, class F> void dispatch_activation_backward(Activation activation, F&& run) {
  switch (activation) {
    case Activation::none: return run(IdentityBackward<C>{});
    case Activation::relu: return run(ReluBackward<C>{});
    case Activation::gelu: return run(GeluBackward<C>{});
  }
}

template <class C> struct Dropout {
  float p;
  const std::int64_t* seed;
  std::uint64_t stream;
  AB_HD C operator()(std::int64_t i, C x) const {
    const Philox random{static_cast<std::uint64_t>(*seed), stream};
    return x * (random.uniform(static_cast<std::uint64_t>(i)) >= p ? C{1} / (C{1} - static_cast<C>(p)) : C{0});
  }
};

/// One sample per row.
template <class T> struct DropPath {
  const T* x;
  T* y;
  std::int64_t length;
  float p;
  const std::int64_t* seed;
  std::uint64_t stream;
  template <class Team> AB_HD void operator()(const Team& team, std::int64_t sample) const {
    using C = compute_t<T>;
    const C kept = Dropout<C>{p, seed, stream}(sample, C{1});
    lane_map(
        team, length, y + sample * length, [=](C v) { return v * kept; }, x + sample * length);
  }
};

/// One row per team: z = v + bias in place of v, and y = activation(z). y may be z.
template <class T, class Activation> struct BiasAndActivation {
  using C = compute_t<T>;
  T* z;
  T* y;
  const T* bias;
  std::int64_t columns;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t row) const {
    T* const z_row = z + row * columns;
    T* const y_row = y + row * columns;
    constexpr int width = kLaneWidth<Team, T>;
    const bool packed = packable<width>(width, z_row, y_row, bias);
    for_each_block<width>(team, columns, packed, [&](std::int64_t begin, auto count) {
      const auto v = load(z_row + begin, count), b = load(bias + begin, count);
      // y first: on a CPU, v is read where it is used, and z takes its place.
      assign_block(
          y_row, begin, count, [](C x, C addend) { return Activation{}(x + addend); }, v, b);
      if (z != y)
        assign_block(
            z_row, begin, count, [](C x, C addend) { return x + addend; }, v, b);
    });
  }
};

/// One row per team: y = v + bias + addend in place of v.
template <class T> struct BiasAndAddend {
  using C = compute_t<T>;
  T* y;
  const T* bias;
  const T* addend;
  std::int64_t columns;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t row) const {
    T* const to = y + row * columns;
    lane_map(
        team, columns, to, [](C v, C b, C a) { return v + b + a; }, to, bias, addend + row * columns);
  }
};

}  // namespace ab::kernels
