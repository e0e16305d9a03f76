#pragma once
// SPDX-License-Identifier: MIT
//
// Elementwise activations and their gradients on plain tensors; results are fresh.
//   relu     y = max(x, 0)                      dx = dy where y > 0
//   gelu     y = x Φ(x)                         dx = dy (Φ(x) + x φ(x))
//   dropout  y = x · mask / (1 − p)             dx = dy · mask / (1 − p), mask_i = [uniform_i >= p]
//   drop path  the same with one mask for each sample

#include <cmath>

#include "engine/backend/exec.h"
#include "engine/core/random.h"
#include "engine/core/tensor.h"

namespace ab {

Tensor relu_forward(const Tensor& x);
/// From the forward result y.
Tensor relu_backward(const Tensor& dy, const Tensor& y);

Tensor gelu_forward(const Tensor& x);
Tensor gelu_backward(const Tensor& dy, const Tensor& x);

/// Forward and backward alike: the mask is drawn from Philox{seed, stream} both times. p in [0, 1), seed: [1] int64.
Tensor apply_dropout(const Tensor& x, float p, const Tensor& seed, std::uint64_t stream);
/// The same with number n for all of sample n.   x: [N, ...]
Tensor apply_drop_path(const Tensor& x, float p, const Tensor& seed, std::uint64_t stream);

namespace kernels {

template <class T> struct Relu {
  const T* x;
  T* y;
  AB_HD void operator()(std::int64_t i) const {
    const auto v = static_cast<compute_t<T>>(x[i]);
    y[i] = static_cast<T>(v < 0 ? compute_t<T>{0} : v);
  }
};

template <class T> struct ReluBackward {
  const T* dy;
  const T* y;
  T* dx;
  AB_HD void operator()(std::int64_t i) const {
    const auto g = static_cast<compute_t<T>>(dy[i]);
    dx[i] = static_cast<T>(static_cast<compute_t<T>>(y[i]) > 0 ? g : compute_t<T>{0});
  }
};

/// Φ(v), the distribution function of the standard normal.
template <class C> AB_HD C normal_cdf(C v) {
  return C(0.5) * (C(1) + std::erf(v * C(0.70710678118654752440)));
}

template <class T> struct Gelu {
  const T* x;
  T* y;
  AB_HD void operator()(std::int64_t i) const {
    const auto v = static_cast<compute_t<T>>(x[i]);
    y[i] = static_cast<T>(v * normal_cdf(v));
  }
};

template <class T> struct GeluBackward {
  const T* dy;
  const T* x;
  T* dx;
  AB_HD void operator()(std::int64_t i) const {
    using C = compute_t<T>;
    const auto v = static_cast<C>(x[i]);
    const C density = C(0.39894228040143267794) * std::exp(C(-0.5) * v * v);
    dx[i] = static_cast<T>(static_cast<C>(dy[i]) * (normal_cdf(v) + v * density));
  }
};

template <class T> struct Dropout {
  const T* x;
  T* y;
  float p;
  const std::int64_t* seed;
  std::uint64_t stream;
  AB_HD void operator()(std::int64_t i) const {
    using C = compute_t<T>;
    const Philox random{static_cast<std::uint64_t>(*seed), stream};
    const C kept =
        random.uniform(static_cast<std::uint64_t>(i)) >= p ? C{1} / (C{1} - static_cast<C>(p)) : C{0};
    y[i] = static_cast<T>(static_cast<C>(x[i]) * kept);
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
    const Philox random{static_cast<std::uint64_t>(*seed), stream};
    const C kept =
        random.uniform(static_cast<std::uint64_t>(sample)) >= p ? C{1} / (C{1} - static_cast<C>(p)) : C{0};
    const T* from = x + sample * length;
    T* to = y + sample * length;
    for (std::int64_t i = team.lane(); i < length; i += team.size())
      to[i] = static_cast<T>(static_cast<C>(from[i]) * kept);
  }
};

}  // namespace kernels
}  // namespace ab
