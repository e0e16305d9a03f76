// SPDX-License-Identifier: MIT
//
// float16 against its definition, for all 65,536 values.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/core/dtype.h"

namespace ab {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kInfinityBits = 0x7c00;

float16 of_bits(int bits) {
  float16 half;
  half.bits = static_cast<std::uint16_t>(bits);
  return half;
}

int bits_of(float value) { return float16(value).bits; }

/// sign · 2^(exponent − 15) · 1.mantissa, and 2^-14 · 0.mantissa for exponent 0.
float by_definition(int bits) {
  const int exponent = bits >> 10 & 0x1f, mantissa = bits & 0x3ff;
  const float sign = bits & 0x8000 ? -1.0f : 1.0f;
  if (exponent == 0x1f) return mantissa ? std::numeric_limits<float>::quiet_NaN() : sign * kInfinity;
  return sign * (exponent ? std::ldexp(1024.0f + static_cast<float>(mantissa), exponent - 25)
                          : std::ldexp(static_cast<float>(mantissa), -24));
}

TEST(Float16, EveryValueIsWhatTheFormatSaysAndComesBack) {
  for (int bits = 0; bits < 65536; ++bits) {
    const float value = of_bits(bits), expected = by_definition(bits);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_TRUE(std::isnan(float{float16(value)})) << bits;
      continue;
    }
    ASSERT_EQ(value, expected) << bits;
    ASSERT_EQ(std::signbit(value), std::signbit(expected)) << bits;
    ASSERT_EQ(bits_of(value), bits);
  }
}

TEST(Float16, RoundsToNearestEven) {
  for (int bits = 0; bits < kInfinityBits; ++bits) {
    const float below = of_bits(bits);
    // The half above the largest would be 65,536; from the middle on, values round to infinity.
    const float above = bits + 1 == kInfinityBits ? 65536.0f : float{of_bits(bits + 1)};
    const float middle = (below + above) / 2;
    const int even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(bits_of(middle), even);
    ASSERT_EQ(bits_of(std::nextafter(middle, 0.0f)), bits);
    ASSERT_EQ(bits_of(std::nextafter(middle, kInfinity)), bits + 1);
    ASSERT_EQ(bits_of(-middle), even | 0x8000);
  }
  EXPECT_EQ(bits_of(std::numeric_limits<float>::max()), kInfinityBits);
  EXPECT_EQ(bits_of(std::numeric_limits<float>::denorm_min()), 0);
}

}  // namespace
}  // namespace ab
