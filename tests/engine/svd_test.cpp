// SPDX-License-Identifier: MIT
//
// The laws of the singular value decomposition on easy and hard matrices, for each backend.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "engine/backend/backend.h"
#include "engine/backend/factorisations.h"
#include "engine/core/threads.h"
#include "engine/device/device.h"
#include "tests/tensor_values.h"

namespace ab {
namespace {

Tensor product(const Tensor& a, const Tensor& b) {
  const Tensor c({a.dim(0), b.dim(1)});
  cpu_backend().gemm({}, a, b, c);
  return c;
}

/// Largest |entry| of QᵀQ − I, in float64.
double distance_from_orthonormal(const Tensor& q) {
  const std::int64_t n = q.dim(1);
  const Tensor q64 = cast(q, DType::float64), gram({n, n}, DType::float64);
  cpu_backend().gemm({.transpose_a = true}, q64, q64, gram);
  double worst = 0;
  for (std::int64_t i = 0; i < n * n; ++i) {
    const double error = std::abs(gram.data<double>()[i] - (i / n == i % n ? 1.0 : 0.0));
    worst = std::isfinite(error) ? std::max(worst, error) : std::numeric_limits<double>::infinity();
  }
  return worst;
}

Tensor transposed(const Tensor& a) {
  const Tensor t({a.dim(1), a.dim(0)}, a.dtype());
  for (std::int64_t i = 0; i < a.numel(); ++i)
    t.data<float>()[i % a.dim(1) * a.dim(0) + i / a.dim(1)] = a.data<float>()[i];
  return t;
}

Tensor scaled(const Tensor& a, float factor) {
  const Tensor b = a.clone();
  for (float& v : b.span<float>()) v *= factor;
  return b;
}

/// U diag(s) Vᵀ with singular values s_j = spectrum(j).
template <class F> Tensor with_spectrum(std::int64_t m, std::int64_t n, const F& spectrum) {
  const Svd random = cpu_backend().svd(normal_values({m, n}, 11));
  const Tensor us = random.u.clone();
  for (std::int64_t i = 0; i < us.numel(); ++i) us.data<float>()[i] *= spectrum(i % n);
  return product(us, random.vt);
}

struct Matrix {
  const char* name;
  Tensor (*make)();
};

const Matrix kMatrices[] = {
    {"normal",
     [] {
       return normal_values({60, 24}, 1);
     }},
    {"square",
     [] {
       return normal_values({24, 24}, 1);
     }},
    {"one_column",
     [] {
       return normal_values({9, 1}, 1);
     }},
    {"one_entry",
     [] {
       return Tensor::from<float>({-3.0f}, {1, 1});
     }},
    {"zero",
     [] {
       return Tensor::zeros({12, 5});
     }},
    {"rank_1",
     [] {
       return product(normal_values({40, 1}, 1), normal_values({1, 16}, 2));
     }},
    {"rank_5",
     [] {
       return product(normal_values({40, 5}, 1), normal_values({5, 16}, 2));
     }},
    {"all_equal",
     [] {
       return Tensor::from(std::vector<float>(40 * 16, 0.5f), {40, 16});
     }},
    {"huge",
     [] {
       return scaled(normal_values({40, 16}, 1), 1e30f);
     }},
    {"tiny",
     [] {
       return scaled(normal_values({40, 16}, 1), 1e-30f);
     }},
    {"equal_singular_values", [] { return with_spectrum(40, 16, [](std::int64_t) { return 2.0f; }); }},
    {"graded_to_1e-12",
     [] { return with_spectrum(60, 13, [](std::int64_t j) { return std::pow(10.0f, -float(j)); }); }},
    {"cut_off_at_1e-5",
     [] { return with_spectrum(60, 16, [](std::int64_t j) { return j < 8 ? 1.0f / float(j + 1) : 1e-5f; }); }},
    {"zero_columns",
     [] {
       const Tensor w = normal_values({30, 12}, 1);
       for (std::int64_t i = 0; i < w.numel(); ++i)
         if (i % 12 % 3 == 0) w.data<float>()[i] = 0.0f;
       return w;
     }},
};

void expect_laws(const Tensor& w, const Svd& svd) {
  const std::int64_t m = w.dim(0), n = w.dim(1);
  ASSERT_EQ(svd.u.shape(), (Shape{m, n}));
  ASSERT_EQ(svd.s.shape(), (Shape{n}));
  ASSERT_EQ(svd.vt.shape(), (Shape{n, n}));

  EXPECT_LT(distance_from_orthonormal(svd.u), 5e-6);
  EXPECT_LT(distance_from_orthonormal(transposed(svd.vt)), 5e-6);
  const auto s = svd.s.span<float>();
  EXPECT_TRUE(std::is_sorted(s.rbegin(), s.rend()));
  EXPECT_GE(s.back(), 0.0f);

  const Tensor us = svd.u.clone();
  for (std::int64_t i = 0; i < us.numel(); ++i) us.data<float>()[i] *= s[static_cast<std::size_t>(i % n)];
  const Tensor rebuilt = product(us, svd.vt);
  for (std::int64_t i = 0; i < w.numel(); ++i)
    ASSERT_LE(std::abs(rebuilt.data<float>()[i] - w.data<float>()[i]), 4e-6f * s[0]) << "entry " << i;

  for (std::int64_t j = 0; j < n; ++j) {
    const auto row = svd.vt.span<float>().subspan(static_cast<std::size_t>(j * n), static_cast<std::size_t>(n));
    EXPECT_GT(*std::max_element(row.begin(), row.end(), [](float a, float b) { return std::abs(a) < std::abs(b); }),
              0.0f);
  }
}

class SvdLaws : public testing::TestWithParam<Matrix> {};

TEST_P(SvdLaws, Hold) {
  const Tensor w = GetParam().make();
  expect_laws(w, cpu_backend().svd(w));
}

TEST_P(SvdLaws, HoldOnAGpu) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_unavailable_reason();
  const Tensor w = GetParam().make();
  const Device gpu{DeviceKind::cuda, 0};
  const Svd svd = backend(gpu).svd(w.to(gpu));
  expect_laws(w, {svd.u.to({}), svd.s.to({}), svd.vt.to({})});
}

INSTANTIATE_TEST_SUITE_P(Matrices, SvdLaws, testing::ValuesIn(kMatrices), [](const auto& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(Svd, RefusesNaNAndInfinity) {
  for (const float bad : {kNaN, std::numeric_limits<float>::infinity()}) {
    const Tensor w = normal_values({8, 4}, 1);
    w.data<float>()[13] = bad;
    try {
      cpu_backend().svd(w);
      ADD_FAILURE() << "accepted " << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::numerics);
    }
  }
}

TEST(Svd, IsTheSameInEveryThread) {
  const Tensor w = normal_values({80, 30}, 1);
  set_compute_threads(1);
  const Svd here = cpu_backend().svd(w);
  std::vector<Svd> there(2);
  {
    std::vector<std::thread> ranks;
    for (Svd& result : there)
      ranks.emplace_back([&] {
        set_compute_threads(1);
        for (int repeat = 0; repeat < 5; ++repeat) result = cpu_backend().svd(w);
      });
    for (std::thread& rank : ranks) rank.join();
  }
  for (const Svd& result : there) {
    EXPECT_EQ(result.u.to_doubles(), here.u.to_doubles());
    EXPECT_EQ(result.s.to_doubles(), here.s.to_doubles());
    EXPECT_EQ(result.vt.to_doubles(), here.vt.to_doubles());
  }
}

// --- What ranks are chosen with: float64 on the host.

/// WᵀW [n, n] in float64.
Tensor gram_of(const Tensor& w) {
  const Tensor w64 = cast(w, DType::float64), gram({w.dim(1), w.dim(1)}, DType::float64);
  cpu_backend().gemm({.transpose_a = true}, w64, w64, gram);
  return gram;
}

Tensor product64(const Tensor& a, const Tensor& b, bool transpose_b) {
  const Tensor c({a.dim(0), transpose_b ? b.dim(0) : b.dim(1)}, DType::float64);
  cpu_backend().gemm({.transpose_b = transpose_b}, a, b, c);
  return c;
}

TEST(SymmetricMatrices, EigenvaluesAreThoseThatComeWithVectors) {
  for (const Matrix& matrix : kMatrices) {
    const Tensor gram = gram_of(matrix.make());
    const SymmetricEigen both = symmetric_eigen(gram);
    const std::vector<double> values = symmetric_eigenvalues(gram);
    ASSERT_EQ(values.size(), both.values.size());
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(values[i], both.values[i], 1e-12 * both.values[0]) << matrix.name;
  }
}

TEST(SymmetricMatrices, CholeskyIsATriangleWhoseSquareIsTheMatrix) {
  const Tensor a = gram_of(normal_values({40, 17}, 5));
  const Cholesky parts = cholesky(a);
  EXPECT_LT(relative_error(product64(parts.lower, parts.lower, true), a), 1e-14);
  const Tensor one = product64(parts.lower, parts.inverse, false);
  for (std::int64_t i = 0; i < 17; ++i)
    for (std::int64_t j = 0; j < 17; ++j) {
      EXPECT_NEAR(one.data<double>()[i * 17 + j], i == j, 1e-12);
      if (j <= i) continue;
      EXPECT_EQ(parts.lower.data<double>()[i * 17 + j], 0);
      EXPECT_EQ(parts.inverse.data<double>()[i * 17 + j], 0);
    }
}

TEST(SymmetricMatrices, CholeskyRefusesWhatIsNotPositiveDefinite) {
  for (const double bad : {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const Tensor a = gram_of(normal_values({40, 5}, 5));
    a.data<double>()[12] = bad;  // on the diagonal
    try {
      cholesky(a);
      ADD_FAILURE() << "accepted " << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::numerics);
    }
  }
}

}  // namespace
}  // namespace ab
