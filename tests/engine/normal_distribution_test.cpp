// SPDX-License-Identifier: MIT
//
// Exponential and normal distribution in float32 against the standard library's in float64.
#include "engine/kernels/special_functions.h"

#include <gtest/gtest.h>

#include <limits>

namespace ab::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNotANumber = std::numeric_limits<float>::quiet_NaN();
constexpr int kPoints = 200000;

double relative_error(double got, double expected) { return std::abs(got - expected) / expected; }

TEST(ExpOfNegative, IsAccurateDownToTheSmallestNormalNumbers) {
  for (int i = 0; i <= kPoints; ++i) {
    const float x = -87.0f * static_cast<float>(i) / kPoints;
    ASSERT_LT(relative_error(exp_of_negative(x), std::exp(static_cast<double>(x))), 2e-7) << x;
  }
  EXPECT_EQ(exp_of_negative(0.0f), 1.0f);
  EXPECT_EQ(exp_of_negative(-0.0f), 1.0f);
  for (const float x : {-87.5f, -104.0f, -1e30f, -kInf}) EXPECT_EQ(exp_of_negative(x), 0.0f) << x;
  EXPECT_TRUE(std::isnan(exp_of_negative(kNotANumber)));
}

TEST(NormalAt, IsAccurateInTheMiddleAndInTheTails) {
  for (int i = -kPoints; i <= kPoints; ++i) {
    const float z = 13.0f * static_cast<float>(i) / kPoints;
    const double exact = z, cdf = std::erfc(-exact * std::sqrt(0.5)) / 2;
    const NormalAt<float> normal = normal_at(z);
    ASSERT_NEAR(normal.cdf, cdf, 2e-7) << z;
    ASSERT_LT(relative_error(normal.cdf, cdf), 6e-6) << z;  // half an ulp of z²/2 counts for that much in the tail
    ASSERT_NEAR(normal.density, std::exp(-exact * exact / 2) / std::sqrt(2 * M_PI), 1e-7) << z;
  }
  EXPECT_EQ(normal_at(kInf).cdf, 1.0f);
  EXPECT_EQ(normal_at(-kInf).cdf, 0.0f);
  EXPECT_EQ(normal_at(-kInf).density, 0.0f);
  EXPECT_TRUE(std::isnan(normal_at(kNotANumber).cdf));
}

}  // namespace
}  // namespace ab::kernels
