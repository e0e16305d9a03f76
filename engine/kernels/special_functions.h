#pragma once
// SPDX-License-Identifier: MIT
//
// exp(x) for x <= 0 and the standard normal distribution, without branches and calls, so that compilers turn loops over them
// into vectors.

#include <bit>
#include <cmath>
#include <cstdint>

#include "engine/core/dtype.h"

namespace ab::kernels {

/// Σ c_i xⁿ⁻ⁱ for c_0, …, c_n
template <class... Rest> AB_HD constexpr float polynomial(float x, float leading, Rest... rest) {
  float y = leading;
  ((y = y * x + rest), ...);
  return y;
}

/// exp(x) for x <= 0, to 2·10⁻⁷ of its value; 0 below −87.
AB_HD inline float exp_of_negative(float x) {
  // 1.5 · 2²³: what is added to it is rounded to a whole number, in its lowest bits.
  constexpr float kShift = 12582912.0f;
  const float shifted = x * 1.44269504f + kShift, n = shifted - kShift;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;  // ln 2 in two parts
  const float series = polynomial(r, 1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f);
  const float power = std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) << 23) + 0x3f800000u);  // 2ⁿ
  return x < -87.0f ? 0.0f : series * power;
}

AB_HD inline double exp_of_negative(double x) { return std::exp(x); }

// The standard normal distribution, for GELU.
//   Φ(−t) = exp(−t²/2) · M(t),  M(t) = erfcx(t / √2) / 2,  t >= 0
// M falls smoothly from ½, and in u = 1 / (1 + 0.35 t) it is a polynomial to 8·10⁻⁸ of its value, up to t = 13.2 (weighted
// least squares, weights raised where the error is large). One exponential serves Φ and its density.

template <class C> struct NormalAt {
  C cdf;      ///< Φ(z)
  C density;  ///< φ(z) = exp(−z²/2) / √(2π)
};

/// 1 / x for x >= 1. A GPU's is off by up to 2 units in the last place (2.4·10⁻⁷ of its value), and takes fewer instructions than a division.
AB_HD inline float reciprocal(float x) {
#ifdef __CUDA_ARCH__
  return __fdividef(1.0f, x);
#else
  return 1.0f / x;
#endif
}

AB_HD inline NormalAt<float> normal_at(float z) {
  const float t = std::abs(z), e = exp_of_negative(-0.5f * t * t), u = reciprocal(1.0f + 0.35f * t);
  const float m = polynomial(u, -0.029108993709f, 0.143788516521f, -0.255327850580f, 0.158722609282f, -0.022791130468f,
                             0.105369344354f, 0.119869053364f, 0.139856711030f, 0.139621704817f);
  const float tail = e * (u * m);
  return {z < 0 ? tail : 1.0f - tail, 0.39894228f * e};
}

AB_HD inline NormalAt<double> normal_at(double z) {
  return {0.5 * (1 + std::erf(z * 0.70710678118654752440)), 0.39894228040143267794 * std::exp(-0.5 * z * z)};
}

}  // namespace ab::kernels
