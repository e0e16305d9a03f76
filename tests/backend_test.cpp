// SPDX-License-Identifier: MIT
//
// The CPU backend: every convolution algorithm against plain float64 loops, matrix products, and the laws of
// the singular value decomposition on easy and hard matrices. Outputs are filled with NaN beforehand, so that
// an element that is read before it is written, or never written, shows.
#include "engine/backend/backend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "engine/backend/cpu/conv.h"
#include "engine/backend/cpu/conv_select.h"
#include "engine/core/random.h"
#include "engine/core/threads.h"

namespace ab {
namespace {

using cpu::ConvAlgorithm;
using cpu::ConvDirection;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Tensor normal_values(const Shape& shape, std::uint64_t stream) {
  const Tensor t(shape);
  const Philox random{7, stream};
  for (std::int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = random.normal(static_cast<std::uint64_t>(i));
  return t;
}

Tensor poisoned(const Shape& shape, DType dtype = DType::float32) {
  const Tensor t(shape, dtype);
  dispatch_float(dtype, "poisoned", [&]<class T>() { std::fill_n(t.data<T>(), t.numel(), static_cast<T>(kNaN)); });
  return t;
}

Tensor cast(const Tensor& x, DType dtype) {
  const Tensor y(x.shape(), dtype);
  const std::vector<double> values = x.to_doubles();
  dispatch_float(dtype, "cast", [&]<class T>() {
    std::transform(values.begin(), values.end(), y.data<T>(), [](double v) { return static_cast<T>(static_cast<compute_t<T>>(v)); });
  });
  return y;
}

/// ‖a − b‖ / ‖b‖ in the Euclidean norm.
double relative_error(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to_doubles(), y = b.to_doubles();
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    difference += (x[i] - y[i]) * (x[i] - y[i]);
    norm += y[i] * y[i];
  }
  return std::sqrt(difference / norm);
}

// --- convolution -----------------------------------------------------------------------------------------

struct ConvCase {
  Conv2dSpec spec;
  Tensor x, w, bias, dy;          ///< float32 inputs
  Tensor y_exact, dx_exact, dw_exact;  ///< float64 results of the loops
};

ConvCase make_case(const Conv2dSpec& s) {
  const Shape y_shape{s.batch, s.out_height(), s.out_width(), s.out_channels};
  ConvCase c{s,
             normal_values({s.batch, s.height, s.width, s.in_channels}, 1),
             normal_values({s.out_channels, s.kernel_h, s.kernel_w, s.in_channels / s.groups}, 2),
             normal_values({s.out_channels}, 3),
             normal_values(y_shape, 4),
             poisoned(y_shape, DType::float64),
             {},
             {}};
  c.dx_exact = poisoned(c.x.shape(), DType::float64);
  c.dw_exact = poisoned(c.w.shape(), DType::float64);
  const auto f64 = [](const Tensor& t) { return cast(t, DType::float64); };
  Backend& backend = cpu_backend();
  backend.conv2d_forward(s, f64(c.x), f64(c.w), f64(c.bias), c.y_exact);
  backend.conv2d_backward_data(s, f64(c.dy), f64(c.w), c.dx_exact);
  backend.conv2d_backward_weight(s, f64(c.dy), f64(c.x), c.dw_exact);
  return c;
}

struct NamedSpec {
  const char* name;
  Conv2dSpec spec;
};

// batch, height, width, in, out, kernel h, kernel w, stride, padding, dilation, groups
const NamedSpec kSpecs[] = {
    {"first_layer", {3, 11, 9, 3, 16, 3, 3, 1, 1, 1, 1}},
    {"one_block", {5, 8, 8, 16, 16, 3, 3, 1, 1, 1, 1}},
    {"odd_size", {2, 7, 5, 32, 48, 3, 3, 1, 1, 1, 1}},
    {"narrow_to_wide", {4, 4, 4, 32, 128, 3, 3, 1, 1, 1, 1}},
    {"ragged_channels", {2, 6, 6, 20, 9, 3, 3, 1, 1, 1, 1}},
    {"tiny_images", {33, 2, 2, 64, 80, 3, 3, 1, 1, 1, 1}},
    {"single_pixel", {32, 1, 1, 64, 64, 3, 3, 1, 1, 1, 1}},
    {"stride_2", {2, 9, 8, 16, 32, 3, 3, 2, 1, 1, 1}},
    {"pointwise", {3, 5, 6, 64, 72, 1, 1, 1, 0, 1, 1}},
    {"shortcut", {3, 8, 8, 16, 32, 1, 1, 2, 0, 1, 1}},
    {"dilated", {2, 9, 9, 8, 16, 3, 3, 1, 2, 2, 1}},
    {"no_padding", {2, 7, 7, 16, 16, 3, 3, 1, 0, 1, 1}},
    {"oblong_kernel", {2, 9, 9, 16, 16, 5, 3, 2, 2, 1, 1}},
    {"grouped", {2, 6, 6, 16, 32, 3, 3, 1, 1, 1, 4}},
    {"depthwise", {2, 6, 6, 24, 24, 3, 3, 2, 1, 1, 24}},
    {"patches", {2, 16, 16, 3, 48, 4, 4, 4, 0, 1, 1}},
};

/// What separates a rounding error from a wrong result. Winograd's F(4×4, 3×3) multiplies by constants up to 8
/// and subtracts again, which costs about one decimal digit.
double tolerance(ConvAlgorithm algorithm, const Conv2dSpec& s, ConvDirection direction) {
  const std::int64_t length = direction == ConvDirection::forward ? s.kernel_h * s.kernel_w * s.in_channels / s.groups
                              : direction == ConvDirection::backward_data
                                  ? s.kernel_h * s.kernel_w * s.out_channels / s.groups
                                  : s.batch * s.out_height() * s.out_width();
  const double digit = algorithm == ConvAlgorithm::winograd || algorithm == ConvAlgorithm::winograd_onednn ? 10 : 1;
  return digit * 1e-6 * std::sqrt(static_cast<double>(length));
}

/// Runs one algorithm in all three directions; false when it does not apply to the shape in any.
bool check_algorithm(ConvAlgorithm algorithm, const ConvCase& c) {
  bool ran = false;
  for (const auto direction :
       {ConvDirection::forward, ConvDirection::backward_data, ConvDirection::backward_weight}) {
    const bool data = direction == ConvDirection::backward_data, weight = direction == ConvDirection::backward_weight;
    for (const bool with_bias : {false, true}) {
      if (with_bias && direction != ConvDirection::forward) continue;
      const Tensor x = data ? poisoned(c.x.shape()) : c.x, w = weight ? poisoned(c.w.shape()) : c.w;
      const Tensor y = data || weight ? c.dy : poisoned(c.dy.shape());
      const cpu::ConvTensors tensors{x.data<float>(), w.data<float>(), with_bias ? c.bias.data<float>() : nullptr,
                                     y.data<float>()};
      if (!cpu::run_conv(algorithm, c.spec, direction, tensors)) continue;
      ran = true;
      Tensor exact = data ? c.dx_exact : weight ? c.dw_exact : c.y_exact;
      if (direction == ConvDirection::forward && !with_bias) {
        exact = exact.clone();
        for (std::int64_t i = 0; i < exact.numel(); ++i)
          exact.data<double>()[i] -= c.bias.data<float>()[i % c.spec.out_channels];
      }
      EXPECT_LT(relative_error(data ? x : weight ? w : y, exact), tolerance(algorithm, c.spec, direction))
          << name_of(algorithm) << ", direction " << static_cast<int>(direction) << (with_bias ? ", bias" : "");
    }
  }
  return ran;
}

class ConvAlgorithms : public testing::TestWithParam<NamedSpec> {
 protected:
  void TearDown() override { set_compute_threads(threads_); }
  const int threads_ = compute_threads();
};

TEST_P(ConvAlgorithms, AgreeWithFloat64Loops) {
  const ConvCase c = make_case(GetParam().spec);
  for (const int threads : {1, 2}) {
    set_compute_threads(threads);
    for (const ConvAlgorithm algorithm : cpu::kConvAlgorithms) {
      const bool ran = check_algorithm(algorithm, c);
      EXPECT_TRUE(ran || algorithm != ConvAlgorithm::direct) << "the direct algorithm must run every shape";
    }
  }
}

TEST_P(ConvAlgorithms, BackendRunsTheChosenOne) {
  const ConvCase c = make_case(GetParam().spec);
  const Tensor y = poisoned(c.dy.shape()), dx = poisoned(c.x.shape()), dw = poisoned(c.w.shape());
  cpu_backend().conv2d_forward(c.spec, c.x, c.w, c.bias, y);
  cpu_backend().conv2d_backward_data(c.spec, c.dy, c.w, dx);
  cpu_backend().conv2d_backward_weight(c.spec, c.dy, c.x, dw);
  EXPECT_LT(relative_error(y, c.y_exact), 1e-5);
  EXPECT_LT(relative_error(dx, c.dx_exact), 1e-5);
  EXPECT_LT(relative_error(dw, c.dw_exact), 1e-5);
}

TEST_P(ConvAlgorithms, BFloat16RoundsOnceAtTheEnd) {
  const ConvCase c = make_case(GetParam().spec);
  const auto half = [](const Tensor& t) { return cast(t, DType::bfloat16); };
  const auto rounded = [&](const Tensor& t) { return cast(half(t), DType::float32); };
  const Tensor y = poisoned(c.dy.shape(), DType::bfloat16), y32 = poisoned(c.dy.shape());
  cpu_backend().conv2d_forward(c.spec, half(c.x), half(c.w), half(c.bias), y);
  cpu_backend().conv2d_forward(c.spec, rounded(c.x), rounded(c.w), rounded(c.bias), y32);
  EXPECT_EQ(y.to_doubles(), half(y32).to_doubles());

  const Tensor dx = poisoned(c.x.shape(), DType::bfloat16), dw = poisoned(c.w.shape(), DType::bfloat16);
  cpu_backend().conv2d_backward_data(c.spec, half(c.dy), half(c.w), dx);
  cpu_backend().conv2d_backward_weight(c.spec, half(c.dy), half(c.x), dw);
  EXPECT_LT(relative_error(dx, c.dx_exact), 1e-2);
  EXPECT_LT(relative_error(dw, c.dw_exact), 1e-2);
}

INSTANTIATE_TEST_SUITE_P(Shapes, ConvAlgorithms, testing::ValuesIn(kSpecs),
                         [](const auto& info) { return std::string(info.param.name); });

// The float64 loops are what everything else is measured with: here they meet numbers worked out by hand.
TEST(ConvLoops, MatchAHandWorkedExample) {
  // One 3×3 image of one channel, one 2×2 kernel [[1, 2], [3, 4]], no padding.
  const Conv2dSpec s{.batch = 1, .height = 3, .width = 3, .in_channels = 1, .out_channels = 1, .kernel_h = 2, .kernel_w = 2};
  const Tensor x = Tensor::from<double>({1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 3, 3, 1});
  const Tensor w = Tensor::from<double>({1, 2, 3, 4}, {1, 2, 2, 1}), bias = Tensor::from<double>({100}, {1});
  const Tensor dy = Tensor::from<double>({1, 10, 100, 1000}, {1, 2, 2, 1});
  const Tensor y = poisoned({1, 2, 2, 1}, DType::float64), dx = poisoned(x.shape(), DType::float64);
  const Tensor dw = poisoned(w.shape(), DType::float64);
  cpu_backend().conv2d_forward(s, x, w, bias, y);
  cpu_backend().conv2d_backward_data(s, dy, w, dx);
  cpu_backend().conv2d_backward_weight(s, dy, x, dw);
  EXPECT_EQ(y.to_doubles(), (std::vector<double>{137, 147, 167, 177}));
  EXPECT_EQ(dx.to_doubles(), (std::vector<double>{1, 12, 20, 103, 1234, 2040, 300, 3400, 4000}));
  EXPECT_EQ(dw.to_doubles(), (std::vector<double>{5421, 6532, 8754, 9865}));
}

TEST(ConvSelect, PutsEachShapeWhereItWasMeasuredFastest) {
  const auto choice = [](const Conv2dSpec& s, ConvDirection d) { return cpu::select_conv(s, d); };
  using enum ConvDirection;
  EXPECT_EQ(choice({128, 32, 32, 3, 64, 3, 3, 1, 1, 1, 1}, forward), ConvAlgorithm::direct);
  EXPECT_EQ(choice({128, 4, 4, 512, 512, 3, 3, 1, 1, 1, 1}, backward_weight), ConvAlgorithm::winograd);
  EXPECT_EQ(choice({128, 2, 2, 512, 512, 3, 3, 1, 1, 1, 1}, backward_data), ConvAlgorithm::image_matrix);
  EXPECT_EQ(choice({128, 4, 4, 128, 512, 1, 1, 1, 0, 1, 1}, forward), ConvAlgorithm::pointwise);
  EXPECT_EQ(choice({32, 32, 32, 16, 32, 3, 3, 2, 1, 1, 1}, forward), ConvAlgorithm::direct);
}

// Ranks may be threads: compiled kernels and scratch memory must not be shared between them.
TEST(ConvThreads, AnyThreadMayRunWhatAnotherCompiled) {
  std::vector<ConvCase> cases;
  for (const NamedSpec& named : {kSpecs[1], kSpecs[3], kSpecs[5], kSpecs[7]}) cases.push_back(make_case(named.spec));
  const auto run_all = [&](std::vector<Tensor>& results) {
    set_compute_threads(1);
    for (int repeat = 0; repeat < 3; ++repeat) {
      results.clear();
      for (const ConvCase& c : cases) {
        const Tensor y = poisoned(c.dy.shape()), dx = poisoned(c.x.shape()), dw = poisoned(c.w.shape());
        cpu_backend().conv2d_forward(c.spec, c.x, c.w, c.bias, y);
        cpu_backend().conv2d_backward_data(c.spec, c.dy, c.w, dx);
        cpu_backend().conv2d_backward_weight(c.spec, c.dy, c.x, dw);
        results.insert(results.end(), {y, dx, dw});
      }
    }
  };
  std::vector<Tensor> first, second, third;
  std::thread(run_all, std::ref(first)).join();
  std::thread a(run_all, std::ref(second)), b(run_all, std::ref(third));
  a.join();
  b.join();
  for (std::size_t i = 0; i < first.size(); ++i) {
    EXPECT_LT(relative_error(first[i], i % 3 == 0   ? cases[i / 3].y_exact
                                       : i % 3 == 1 ? cases[i / 3].dx_exact
                                                    : cases[i / 3].dw_exact),
              1e-5);
    EXPECT_EQ(first[i].to_doubles(), second[i].to_doubles()) << "same call, same bits, whoever runs it";
    EXPECT_EQ(first[i].to_doubles(), third[i].to_doubles());
  }
}

TEST(Conv, EmptyBatchGivesZeroWeightGradient) {
  const Conv2dSpec s{0, 4, 4, 16, 16, 3, 3, 1, 1, 1, 1};
  const Tensor x({0, 4, 4, 16}), dw = poisoned({16, 3, 3, 16});
  cpu_backend().conv2d_forward(s, x, dw, {}, x);
  cpu_backend().conv2d_backward_data(s, x, dw, x);
  cpu_backend().conv2d_backward_weight(s, x, x, dw);
  EXPECT_EQ(dw.to_doubles(), std::vector<double>(static_cast<std::size_t>(dw.numel()), 0.0));
}

// --- matrix products -------------------------------------------------------------------------------------

class Gemm : public testing::TestWithParam<std::tuple<DType, bool, bool, float>> {};

TEST_P(Gemm, IsAlphaTimesProductPlusBetaTimesC) {
  const auto [dtype, transpose_a, transpose_b, beta] = GetParam();
  const std::int64_t m = 37, n = 21, k = 50;
  const Tensor a = cast(normal_values(transpose_a ? Shape{k, m} : Shape{m, k}, 1), dtype);
  const Tensor b = cast(normal_values(transpose_b ? Shape{n, k} : Shape{k, n}, 2), dtype);
  const Tensor c = beta == 0.0f ? poisoned({m, n}, dtype) : cast(normal_values({m, n}, 3), dtype);
  const std::vector<double> av = a.to_doubles(), bv = b.to_doubles(), before = c.to_doubles();
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  const Tensor expected({m, n}, DType::float64);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::int64_t l = 0; l < k; ++l)
        sum += av[at(transpose_a ? l * m + i : i * k + l)] * bv[at(transpose_b ? j * k + l : l * n + j)];
      expected.data<double>()[i * n + j] = 1.5 * sum + (beta == 0.0f ? 0.0 : beta * before[at(i * n + j)]);
    }
  cpu_backend().gemm({transpose_a, transpose_b, 1.5f, beta}, a, b, c);
  EXPECT_LT(relative_error(c, expected), dtype == DType::float64 ? 1e-14 : dtype == DType::float32 ? 1e-6 : 4e-3);
}

INSTANTIATE_TEST_SUITE_P(All, Gemm,
                         testing::Combine(testing::Values(DType::float32, DType::float64, DType::bfloat16),
                                          testing::Bool(), testing::Bool(), testing::Values(0.0f, 1.0f, -0.5f)));

TEST(Gemm, EmptyInnerDimensionScalesC) {
  const Tensor a({2, 0}), b({0, 3}), c = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  cpu_backend().gemm({.beta = 2.0f}, a, b, c);
  EXPECT_EQ(c.to_doubles(), (std::vector<double>{2, 4, 6, 8, 10, 12}));
  cpu_backend().gemm({}, a, b, c);
  EXPECT_EQ(c.to_doubles(), std::vector<double>(6, 0.0));
}

// --- singular value decomposition ------------------------------------------------------------------------

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
  for (std::int64_t i = 0; i < a.numel(); ++i) t.data<float>()[i % a.dim(1) * a.dim(0) + i / a.dim(1)] = a.data<float>()[i];
  return t;
}

Tensor scaled(const Tensor& a, float factor) {
  const Tensor b = a.clone();
  for (float& v : b.span<float>()) v *= factor;
  return b;
}

/// U diag(s) Vᵀ with singular values s_j = spectrum(j).
template <class F> Tensor with_spectrum(std::int64_t m, std::int64_t n, const F& spectrum) {
  const Svd random = cpu_backend().svd(normal_values({m, n}, 11), SvdMethod::direct);
  const Tensor us = random.u.clone();
  for (std::int64_t i = 0; i < us.numel(); ++i) us.data<float>()[i] *= spectrum(i % n);
  return product(us, random.vt);
}

struct Matrix {
  const char* name;
  Tensor (*make)();
};

const Matrix kMatrices[] = {
    {"normal", [] { return normal_values({60, 24}, 1); }},
    {"square", [] { return normal_values({24, 24}, 1); }},
    {"one_column", [] { return normal_values({9, 1}, 1); }},
    {"one_entry", [] { return Tensor::from<float>({-3.0f}, {1, 1}); }},
    {"zero", [] { return Tensor::zeros({12, 5}); }},
    {"rank_1", [] { return product(normal_values({40, 1}, 1), normal_values({1, 16}, 2)); }},
    {"rank_5", [] { return product(normal_values({40, 5}, 1), normal_values({5, 16}, 2)); }},
    {"all_equal", [] { return Tensor::from(std::vector<float>(40 * 16, 0.5f), {40, 16}); }},
    {"huge", [] { return scaled(normal_values({40, 16}, 1), 1e30f); }},
    {"tiny", [] { return scaled(normal_values({40, 16}, 1), 1e-30f); }},
    {"equal_singular_values", [] { return with_spectrum(40, 16, [](std::int64_t) { return 2.0f; }); }},
    {"graded_to_1e-12", [] { return with_spectrum(60, 13, [](std::int64_t j) { return std::pow(10.0f, -float(j)); }); }},
    {"cut_off_at_1e-5",
     [] { return with_spectrum(60, 16, [](std::int64_t j) { return j < 8 ? 1.0f / float(j + 1) : 1e-5f; }); }},
    {"zero_columns",
     [] {
       const Tensor w = normal_values({30, 12}, 1);
       for (std::int64_t i = 0; i < w.numel(); ++i) if (i % 12 % 3 == 0) w.data<float>()[i] = 0.0f;
       return w;
     }},
};

class SvdLaws : public testing::TestWithParam<std::tuple<Matrix, SvdMethod>> {};

TEST_P(SvdLaws, Hold) {
  const auto& [matrix, method] = GetParam();
  const Tensor w = matrix.make();
  const Svd svd = cpu_backend().svd(w, method);
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
    EXPECT_GT(*std::max_element(row.begin(), row.end(), [](float a, float b) { return std::abs(a) < std::abs(b); }), 0.0f);
  }
}

TEST(Svd, GramAgreesWithDirect) {
  for (const Matrix& matrix : kMatrices) {
    const Tensor w = matrix.make();
    const Svd gram = cpu_backend().svd(w, SvdMethod::gram), direct = cpu_backend().svd(w, SvdMethod::direct);
    for (std::int64_t j = 0; j < w.dim(1); ++j)
      EXPECT_NEAR(gram.s.data<float>()[j], direct.s.data<float>()[j], 2e-6f * direct.s.data<float>()[0])
          << matrix.name << ", singular value " << j;
  }
}

INSTANTIATE_TEST_SUITE_P(Matrices, SvdLaws,
                         testing::Combine(testing::ValuesIn(kMatrices),
                                          testing::Values(SvdMethod::gram, SvdMethod::direct)),
                         [](const auto& info) {
                           std::string name = std::get<0>(info.param).name;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name + (std::get<1>(info.param) == SvdMethod::gram ? "_gram" : "_direct");
                         });

TEST(Svd, RefusesNaNAndInfinity) {
  for (const float bad : {kNaN, std::numeric_limits<float>::infinity()})
    for (const SvdMethod method : {SvdMethod::gram, SvdMethod::direct}) {
      const Tensor w = normal_values({8, 4}, 1);
      w.data<float>()[13] = bad;
      try {
        cpu_backend().svd(w, method);
        ADD_FAILURE() << "accepted " << bad;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::numerics);
      }
    }
}

TEST(Svd, IsTheSameInEveryThread) {
  const Tensor w = normal_values({80, 30}, 1);
  set_compute_threads(1);
  const Svd here = cpu_backend().svd(w, SvdMethod::gram);
  std::vector<Svd> there(2);
  {
    std::vector<std::thread> ranks;
    for (Svd& result : there)
      ranks.emplace_back([&] {
        set_compute_threads(1);
        for (int repeat = 0; repeat < 5; ++repeat) result = cpu_backend().svd(w, SvdMethod::gram);
      });
    for (std::thread& rank : ranks) rank.join();
  }
  for (const Svd& result : there) {
    EXPECT_EQ(result.u.to_doubles(), here.u.to_doubles());
    EXPECT_EQ(result.s.to_doubles(), here.s.to_doubles());
    EXPECT_EQ(result.vt.to_doubles(), here.vt.to_doubles());
  }
}

}  // namespace
}  // namespace ab
