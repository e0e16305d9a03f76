// SPDX-License-Identifier: MIT
//
// Convolutions and matrix products of the CPU backend: every convolution algorithm against plain float64
// loops, and those against numbers worked out by hand. Outputs are filled with NaN beforehand, so that an
// element that is read before it is written, or never written, shows.
#include "engine/backend/backend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <thread>

#include "engine/backend/cpu/conv.h"
#include "engine/backend/cpu/gemm.h"
#include "engine/core/threads.h"
#include "engine/kernels/activation.h"
#include "engine/kernels/reduce.h"
#include "tests/conv_algorithms.h"
#include "tests/reference/conv_loops.h"
#include "tests/tensor_values.h"

namespace ab {
namespace {

using cpu::ConvAlgorithm;

// --- convolution -----------------------------------------------------------------------------------------

struct ConvCase {
  Conv2dSpec spec;
  Tensor x, w, bias, dy;               ///< inputs of one type
  Tensor y_exact, dx_exact, dw_exact;  ///< float64 results of the loops
};

ConvCase make_case(const Conv2dSpec& s, DType type = DType::float32) {
  const Shape y_shape{s.batch, s.out_height(), s.out_width(), s.out_channels};
  ConvCase c{s,
             cast(normal_values({s.batch, s.height, s.width, s.in_channels}, 1), type),
             cast(normal_values({s.out_channels, s.kernel_h, s.kernel_w, s.in_channels / s.groups}, 2), type),
             cast(normal_values({s.out_channels}, 3), type),
             cast(normal_values(y_shape, 4), type),
             poisoned(y_shape, DType::float64),
             {},
             {}};
  c.dx_exact = poisoned(c.x.shape(), DType::float64);
  c.dw_exact = poisoned(c.w.shape(), DType::float64);
  const Tensor x = cast(c.x, DType::float64), w = cast(c.w, DType::float64), dy = cast(c.dy, DType::float64);
  const Tensor bias = cast(c.bias, DType::float64);
  reference::conv_forward(s, x.data<double>(), w.data<double>(), bias.data<double>(), c.y_exact.data<double>());
  reference::conv_backward_data(s, dy.data<double>(), w.data<double>(), c.dx_exact.data<double>());
  reference::conv_backward_weight(s, dy.data<double>(), x.data<double>(), c.dw_exact.data<double>());
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
    {"tiny_images", {65, 2, 2, 64, 80, 3, 3, 1, 1, 1, 1}},
    {"single_pixel", {32, 1, 1, 64, 64, 3, 3, 1, 1, 1, 1}},
    {"several_chunks", {60, 16, 16, 16, 32, 3, 3, 1, 1, 1, 1}},
    {"wide_padding", {2, 6, 7, 16, 32, 3, 3, 1, 2, 1, 1}},
    {"stride_2", {2, 9, 8, 16, 32, 3, 3, 2, 1, 1, 1}},
    {"pointwise", {3, 5, 6, 64, 72, 1, 1, 1, 0, 1, 1}},
    {"shortcut", {3, 8, 8, 16, 32, 1, 1, 2, 0, 1, 1}},
    {"shortcut_of_few_channels", {4, 32, 32, 4, 8, 1, 1, 2, 0, 1, 1}},
    {"dilated", {2, 9, 9, 8, 16, 3, 3, 1, 2, 2, 1}},
    {"no_padding", {2, 7, 7, 16, 16, 3, 3, 1, 0, 1, 1}},
    {"oblong_kernel", {2, 9, 9, 16, 16, 5, 3, 2, 2, 1, 1}},
    {"grouped", {2, 6, 6, 16, 32, 3, 3, 1, 1, 1, 4}},
    {"depthwise", {2, 6, 6, 24, 24, 3, 3, 2, 1, 1, 24}},
    {"patches", {2, 16, 16, 3, 48, 4, 4, 4, 0, 1, 1}},
    {"row", {2, 5, 8, 16, 13, 1, 3, {1, 2}, {0, 1}, 1, 1}},
    {"column", {2, 7, 5, 13, 16, 3, 1, {2, 1}, {1, 0}, 1, 1}},
    {"padded_rows", {2, 4, 6, 16, 32, 3, 3, 1, {2, 0}, 1, 1}},
};

/// What separates a rounding error from a wrong result. Winograd's F(4×4, 3×3) multiplies by constants up to
/// 8 and subtracts again, which costs about one decimal digit.
double tolerance(ConvAlgorithm algorithm, const Conv2dSpec& s, ConvDirection direction, DType result) {
  const std::int64_t length = direction == ConvDirection::forward ? s.kernel_h * s.kernel_w * s.in_channels / s.groups
                              : direction == ConvDirection::backward_data
                                  ? s.kernel_h * s.kernel_w * s.out_channels / s.groups
                                  : s.batch * s.out_height() * s.out_width();
  const double digit = algorithm == ConvAlgorithm::winograd ? 10 : 1;
  const double rounding_of_result = result == DType::bfloat16 ? 1.0 / 256 : 0;
  return digit * 1e-6 * std::sqrt(static_cast<double>(length)) + rounding_of_result;
}

/// Runs one algorithm in all three directions; false when it does not apply to the shape in any.
bool check_algorithm(ConvAlgorithm algorithm, const ConvCase& c) {
  bool ran = false;
  for (const auto direction : {ConvDirection::forward, ConvDirection::backward_data, ConvDirection::backward_weight}) {
    const bool data = direction == ConvDirection::backward_data, weight = direction == ConvDirection::backward_weight;
    for (const bool with_bias : {false, true}) {
      if (with_bias && direction != ConvDirection::forward) continue;
      const DType type = c.x.dtype();
      const Tensor x = data ? poisoned(c.x.shape(), type) : c.x, w = weight ? poisoned(c.w.shape()) : c.w;
      const Tensor y = data || weight ? c.dy : poisoned(c.dy.shape(), type);
      if (!cpu::run_conv(algorithm, c.spec, direction, {x, w, with_bias ? c.bias : Tensor{}, y})) continue;
      ran = true;
      Tensor exact = data ? c.dx_exact : weight ? c.dw_exact : c.y_exact;
      if (direction == ConvDirection::forward && !with_bias) {
        exact = exact.clone();
        const std::vector<double> bias = c.bias.to_doubles();
        for (std::int64_t i = 0; i < exact.numel(); ++i)
          exact.data<double>()[i] -= bias[static_cast<std::size_t>(i % c.spec.out_channels)];
      }
      EXPECT_LT(relative_error(data     ? x
                               : weight ? w
                                        : y,
                               exact),
                tolerance(algorithm, c.spec, direction, weight ? DType::float32 : type))
          << name_of(algorithm) << " in " << name_of(type) << ", direction " << static_cast<int>(direction)
          << (with_bias ? ", bias" : "");
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
  const ConvCase wide = make_case(GetParam().spec), narrow = make_case(GetParam().spec, DType::bfloat16);
  for (const int threads : {1, 2, 3}) {
    set_compute_threads(threads);
    for (const auto& [name, algorithm] : cpu::kConvAlgorithms) {
      const bool ran = check_algorithm(algorithm, wide);
      EXPECT_TRUE(ran || algorithm != ConvAlgorithm::direct) << "the direct algorithm must run every shape";
      const bool ran_narrow = check_algorithm(algorithm, narrow);
      EXPECT_TRUE(ran_narrow || algorithm != ConvAlgorithm::direct || !cpu::native_bfloat16());
    }
  }
}

TEST_P(ConvAlgorithms, BackendRunsTheChosenOne) {
  const ConvCase c = make_case(GetParam().spec);
  const Tensor y = poisoned(c.dy.shape()), dx = poisoned(c.x.shape()), dw = poisoned(c.w.shape());
  const Tensor db = poisoned(c.bias.shape());
  cpu_backend().conv2d_forward(c.spec, c.x, c.w, {c.bias}, y);
  cpu_backend().conv2d_backward_data(c.spec, c.dy, c.w, dx);
  cpu_backend().conv2d_backward_weight(c.spec, c.dy, c.x, dw, db);
  EXPECT_LT(relative_error(y, c.y_exact), 1e-5);
  EXPECT_LT(relative_error(dx, c.dx_exact), 1e-5);
  EXPECT_LT(relative_error(dw, c.dw_exact), 1e-5);
  EXPECT_EQ(db.to_doubles(), column_sums(c.dy).to_doubles());

  const Tensor activated = poisoned(c.dy.shape());
  cpu_backend().conv2d_forward(c.spec, c.x, c.w, {c.bias, Activation::relu}, activated);
  EXPECT_EQ(activated.to_doubles(), activation_forward(Activation::relu, y).to_doubles());
}

// Operands that bfloat16 holds exactly: what is left is one rounding of a sum in float32.
TEST_P(ConvAlgorithms, BFloat16RoundsOnceAtTheEnd) {
  constexpr double kRounding = 0.0019, kFloatSum = 1e-5;  // another rounding would add 0.0006
  const ConvCase c = make_case(GetParam().spec);
  const auto half = [](const Tensor& t) { return cast(t, DType::bfloat16); };
  const auto exact = [&](const Tensor& t) { return cast(half(t), DType::float64); };
  const Tensor y = poisoned(c.dy.shape(), DType::bfloat16), y64 = poisoned(c.dy.shape(), DType::float64);
  cpu_backend().conv2d_forward(c.spec, half(c.x), half(c.w), {half(c.bias)}, y);
  cpu_backend().conv2d_forward(c.spec, exact(c.x), exact(c.w), {exact(c.bias)}, y64);
  EXPECT_LT(relative_error(y, y64), kRounding);

  const Tensor dx = poisoned(c.x.shape(), DType::bfloat16), dx64 = poisoned(c.x.shape(), DType::float64);
  cpu_backend().conv2d_backward_data(c.spec, half(c.dy), half(c.w), dx);
  cpu_backend().conv2d_backward_data(c.spec, exact(c.dy), exact(c.w), dx64);
  EXPECT_LT(relative_error(dx, dx64), kRounding);

  const Tensor dw = poisoned(c.w.shape()), dw64 = poisoned(c.w.shape(), DType::float64);
  cpu_backend().conv2d_backward_weight(c.spec, half(c.dy), half(c.x), dw, {});
  cpu_backend().conv2d_backward_weight(c.spec, exact(c.dy), exact(c.x), dw64, {});
  EXPECT_LT(relative_error(dw, dw64), kFloatSum);
}

INSTANTIATE_TEST_SUITE_P(Shapes, ConvAlgorithms, testing::ValuesIn(kSpecs),
                         [](const auto& info) { return std::string(info.param.name); });

// Float64, which gradients are checked in, and the loops that everything else is measured with meet numbers worked out by hand.
TEST(ConvFloat64, MatchesAHandWorkedExample) {
  // One 3×3 image of one channel, one 2×2 kernel [[1, 2], [3, 4]], no padding.
  const Conv2dSpec s{
      .batch = 1, .height = 3, .width = 3, .in_channels = 1, .out_channels = 1, .kernel_h = 2, .kernel_w = 2};
  const Tensor x = Tensor::from<double>({1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 3, 3, 1});
  const Tensor w = Tensor::from<double>({1, 2, 3, 4}, {1, 2, 2, 1}), bias = Tensor::from<double>({100}, {1});
  const Tensor dy = Tensor::from<double>({1, 10, 100, 1000}, {1, 2, 2, 1});
  const auto poison = [](const Tensor& t) { return poisoned(t.shape(), DType::float64); };
  Tensor y = poison(dy), dx = poison(x), dw = poison(w);
  const auto check = [&] {
    EXPECT_EQ(y.to_doubles(), (std::vector<double>{137, 147, 167, 177}));
    EXPECT_EQ(dx.to_doubles(), (std::vector<double>{1, 12, 20, 103, 1234, 2040, 300, 3400, 4000}));
    EXPECT_EQ(dw.to_doubles(), (std::vector<double>{5421, 6532, 8754, 9865}));
  };
  cpu_backend().conv2d_forward(s, x, w, {bias}, y);
  cpu_backend().conv2d_backward_data(s, dy, w, dx);
  cpu_backend().conv2d_backward_weight(s, dy, x, dw, {});
  check();
  y = poison(dy), dx = poison(x), dw = poison(w);
  reference::conv_forward(s, x.data<double>(), w.data<double>(), bias.data<double>(), y.data<double>());
  reference::conv_backward_data(s, dy.data<double>(), w.data<double>(), dx.data<double>());
  reference::conv_backward_weight(s, dy.data<double>(), x.data<double>(), dw.data<double>());
  check();
}

TEST(ConvSelect, PutsEachShapeWhereItWasMeasuredFastest) {
  const auto choice = [](const Conv2dSpec& s, ConvDirection d) { return cpu::select_conv(s, d, DType::float32); };
  using enum ConvDirection;
  EXPECT_EQ(choice({128, 32, 32, 3, 64, 3, 3, 1, 1, 1, 1}, forward), ConvAlgorithm::direct);
  EXPECT_EQ(choice({128, 4, 4, 512, 512, 3, 3, 1, 1, 1, 1}, backward_weight),
            cpu::kWinogradIsFast ? ConvAlgorithm::winograd : ConvAlgorithm::direct);
  EXPECT_EQ(choice({128, 4, 4, 8192, 512, 3, 3, 1, 1, 1, 1}, forward), ConvAlgorithm::direct)
      << "it has not so many zeros";
  EXPECT_EQ(choice({128, 2, 2, 512, 512, 3, 3, 1, 1, 1, 1}, backward_data), ConvAlgorithm::image_matrix);
  EXPECT_EQ(choice({128, 4, 4, 128, 512, 1, 1, 1, 0, 1, 1}, forward), ConvAlgorithm::pointwise);
  EXPECT_EQ(choice({32, 32, 32, 16, 32, 3, 3, 2, 1, 1, 1}, forward), ConvAlgorithm::direct);
}

// Ranks may be threads: compiled kernels and scratch memory must not be shared between them.
TEST(ConvThreads, AnyThreadMayRunWhatAnotherCompiled) {
  std::vector<ConvCase> cases;
  for (const NamedSpec& named : {kSpecs[1], kSpecs[5], kSpecs[7], kSpecs[9]}) cases.push_back(make_case(named.spec));
  const auto run_all = [&](std::vector<Tensor>& results) {
    set_compute_threads(1);
    for (int repeat = 0; repeat < 3; ++repeat) {
      results.clear();
      for (const ConvCase& c : cases) {
        const Tensor y = poisoned(c.dy.shape()), dx = poisoned(c.x.shape()), dw = poisoned(c.w.shape());
        cpu_backend().conv2d_forward(c.spec, c.x, c.w, {c.bias}, y);
        cpu_backend().conv2d_backward_data(c.spec, c.dy, c.w, dx);
        cpu_backend().conv2d_backward_weight(c.spec, c.dy, c.x, dw, {});
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
  cpu_backend().conv2d_backward_weight(s, x, x, dw, {});
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

// What a GPU's library does while it writes: in 16 bits, the bias counts before the result is rounded.
TEST(Gemm, AddsTheBiasAndActivatesBeforeItRounds) {
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16, DType::float16}) {
    const Tensor a = cast(normal_values({37, 50}, 1), dtype), b = cast(normal_values({21, 50}, 2), dtype);
    const Tensor bias = cast(normal_values({21}, 3), dtype);
    const auto wide = [](const Tensor& t) { return t.dtype() == DType::float64 ? t : cast(t, DType::float32); };
    const Tensor product = poisoned({37, 21}, wide(a).dtype());
    cpu_backend().gemm({.transpose_b = true}, wide(a), wide(b), product);
    const std::vector<double> sums = product.to_doubles(), bias_values = bias.to_doubles();
    for (const bool has_bias : {false, true})
      for (const Activation activation : {Activation::none, Activation::relu}) {
        Tensor expected({37, 21}, DType::float64);
        for (std::size_t i = 0; i < sums.size(); ++i) {
          double v = sums[i];
          if (has_bias) v += bias_values[i % 21];
          if (dtype != DType::float64) v = static_cast<float>(v);
          expected.data<double>()[i] = activation == Activation::relu ? std::fmax(v, 0.0) : v;
        }
        const Tensor c = poisoned({37, 21}, dtype);
        cpu_backend().gemm({.transpose_b = true}, a, b, c, {has_bias ? bias : Tensor{}, activation});
        EXPECT_EQ(c.to_doubles(), cast(expected, dtype).to_doubles()) << name_of(dtype);
      }
  }
}

TEST(Gemm, BackwardWeightGivesTheBiasGradientToo) {
  const Tensor dy = normal_values({40, 7}, 1), x = normal_values({40, 9}, 2);
  const Tensor dw = poisoned({7, 9}), db = poisoned({7}), expected = poisoned({7, 9});
  cpu_backend().gemm({.transpose_a = true}, dy, x, expected);
  cpu_backend().gemm_backward_weight(dy, x, dw, db);
  EXPECT_EQ(dw.to_doubles(), expected.to_doubles());
  EXPECT_EQ(db.to_doubles(), column_sums(dy).to_doubles());
}

TEST(Gemm, EmptyInnerDimensionScalesC) {
  const Tensor a({2, 0}), b({0, 3}), c = Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  cpu_backend().gemm({.beta = 2.0f}, a, b, c);
  EXPECT_EQ(c.to_doubles(), (std::vector<double>{2, 4, 6, 8, 10, 12}));
  cpu_backend().gemm({}, a, b, c);
  EXPECT_EQ(c.to_doubles(), std::vector<double>(6, 0.0));
}

#ifdef AB_HAS_ONEDNN
// AVX512-BF16 of Intel's processors that know AVX512-FP16 is slower than float32, so that it takes a request. The system may refuse
// AMX to a program.
TEST(Bfloat16, IsMultipliedByTheUnitOfTheProcessor) {
  const char* limit = std::getenv("ONEDNN_MAX_CPU_ISA");
  if (limit && limit != std::string("AVX512_CORE_BF16")) GTEST_SKIP() << "the unit may be hidden";
  std::ifstream file("/proc/cpuinfo");
  const std::string processor{std::istreambuf_iterator<char>(file), {}};
  const auto has = [&](const char* word) { return processor.find(word) != std::string::npos; };
  const bool is_fast = limit || !has("GenuineIntel") || !has(" avx512_fp16");
  const std::string named = cpu::native_bfloat16() ? cpu::native_bfloat16() : "none";
  if (named != "AMX" || limit || !has(" amx_bf16")) {
    EXPECT_EQ(named, has(" avx512_bf16") && is_fast ? "AVX512-BF16" : "none");
  }
}
#endif

TEST(Bfloat16, ProductsOfAnySizeAndFactor) {
  const Tensor a = cast(normal_values({3, 5}, 1), DType::bfloat16), b = cast(normal_values({5, 4}, 2), DType::bfloat16);
  const Tensor bias = cast(normal_values({4}, 3), DType::bfloat16);
  const Tensor c({3, 4}, DType::bfloat16), expected({3, 4});
  const auto wide = [](const Tensor& t) { return cast(t, DType::float32); };
  cpu_backend().gemm({.alpha = 0.5f}, a, b, c, {bias});
  cpu_backend().gemm({.alpha = 0.5f}, wide(a), wide(b), expected, {wide(bias)});
  EXPECT_LT(relative_error(c, expected), 0.004);
  cpu_backend().batched_gemm({.outer = 0, .inner = 2, .m = 3, .n = 4, .k = 5}, a, b, c);
}

// --- batched matrix products -------------------------------------------------------------------------------

class BatchedGemm : public testing::TestWithParam<std::tuple<DType, bool, bool>> {};

// The heads of attention: 2 samples × 3 matrices of 4×5 that lie side by side in rows of 3 · 5 + 1 elements.
TEST_P(BatchedGemm, MultipliesMatricesInsideLongerRows) {
  const auto [dtype, transpose_a, transpose_b] = GetParam();
  const std::int64_t outer = 2, inner = 3, m = 4, n = 5, k = 7;
  const auto grid_of = [&](std::int64_t rows, std::int64_t columns) {
    const std::int64_t row = inner * columns + 1;
    return MatrixGrid{1, row, rows * row, columns};
  };
  BatchedGemmSpec spec{outer, inner, m, n, k, transpose_a, transpose_b, 1.5};
  spec.a = transpose_a ? grid_of(k, m) : grid_of(m, k);
  spec.b = transpose_b ? grid_of(n, k) : grid_of(k, n);
  spec.c = grid_of(m, n);
  const auto elements = [&](const MatrixGrid& grid) { return Shape{outer * grid.outer_stride + 1}; };
  const Tensor a = cast(normal_values(elements(spec.a), 1), dtype), b = cast(normal_values(elements(spec.b), 2), dtype);
  const Tensor c = cast(normal_values(elements(spec.c), 3), dtype);
  const std::vector<double> av = a.to_doubles(), bv = b.to_doubles();
  const auto at = [](const MatrixGrid& g, std::int64_t i, std::int64_t j, std::int64_t row, std::int64_t column) {
    return static_cast<std::size_t>(g.offset + i * g.outer_stride + j * g.inner_stride + row * g.row_stride + column);
  };
  std::vector<double> expected = c.to_doubles();  // what no matrix covers stays
  for (std::int64_t i = 0; i < outer; ++i)
    for (std::int64_t j = 0; j < inner; ++j)
      for (std::int64_t p = 0; p < m; ++p)
        for (std::int64_t q = 0; q < n; ++q) {
          double sum = 0;
          for (std::int64_t l = 0; l < k; ++l)
            sum += av[transpose_a ? at(spec.a, i, j, l, p) : at(spec.a, i, j, p, l)] *
                   bv[transpose_b ? at(spec.b, i, j, q, l) : at(spec.b, i, j, l, q)];
          expected[at(spec.c, i, j, p, q)] = 1.5 * sum;
        }
  cpu_backend().batched_gemm(spec, a, b, c);
  const double tolerance = dtype == DType::float64 ? 1e-14 : dtype == DType::float32 ? 1e-6 : 4e-3;
  EXPECT_LT(relative_error(c, Tensor::from(expected, c.shape())), tolerance);
}

INSTANTIATE_TEST_SUITE_P(All, BatchedGemm,
                         testing::Combine(testing::Values(DType::float32, DType::float64, DType::bfloat16),
                                          testing::Bool(), testing::Bool()));

}  // namespace
}  // namespace ab
