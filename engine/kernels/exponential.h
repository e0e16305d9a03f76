#pragma once
// SPDX-License-Identifier: MIT
//
// exp(x) for x <= 0 without branches and calls, so that compilers turn loops over it into vectors.

#include <bit>
#include <cmath>
#include <cstdint>

#include "engine/core/host_device.h"

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

}  // namespace ab::kernels
