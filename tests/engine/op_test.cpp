// SPDX-License-Identifier: MIT
//
// Everything that must hold for every operation, over the cases of op_cases.h.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <regex>
#include <set>
#include <sstream>

#include "engine/backend/backend.h"
#include "engine/backend/plan_choice.h"
#include "engine/core/threads.h"
#include "engine/device/device.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/random.h"
#include "engine/kernels/reduce.h"
#include "engine/ops/conv.h"
#include "engine/ops/linear.h"
#include "engine/ops/loss.h"
#include "engine/ops/norm.h"
#include "engine/ops/pool.h"
#include "tests/engine/op_cases.h"
#include "tests/gradcheck.h"

namespace ab {
namespace {

using cases::OpCase;
using cases::Values;

std::vector<Var> make_inputs(const OpCase& c, DType dtype, Device device = {}) {
  std::vector<Var> inputs;
  for (std::size_t k = 0; k < c.inputs.size(); ++k)
    inputs.emplace_back(cases::input_values(c.inputs[k], dtype, k).to(device), true);
  return inputs;
}

/// max |a − b| relative to max |b|, at least to one.
double distance(const Values& a, const Values& b) {
  EXPECT_EQ(a.size(), b.size());
  double worst = 0, largest = 1;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double error = std::abs(a[i] - b[i]);
    worst = error <= worst ? worst : error;  // NaN counts
    largest = std::fmax(largest, std::abs(b[i]));
  }
  return worst / largest;
}

/// The result of a case followed by the gradients of all inputs, from a fixed random dy that every type can hold.
std::vector<Values> run(const OpCase& c, const std::vector<Var>& inputs) {
  const Var y = c.apply(inputs);
  Tensor dy(y.shape());
  fill_normal(dy, 0.0, 1.0, Philox{.seed = 21});
  dy = cast(cast(dy, DType::bfloat16), y.value().dtype()).to(y.value().device());
  backward(record("probe", Tensor::zeros(Shape{1}, y.value().dtype(), y.value().device()), {y},
                  [dy](const Tensor&) { return Gradients{dy}; }));
  std::vector<Values> results{y.value().to_doubles()};
  for (const Var& input : inputs) results.push_back(input.grad().defined() ? input.grad().to_doubles() : Values{});
  return results;
}

class OpTest : public testing::TestWithParam<OpCase> {};

TEST_P(OpTest, ForwardMatchesReference) {
  const OpCase& c = GetParam();
  std::vector<Values> inputs;
  for (std::size_t k = 0; k < c.inputs.size(); ++k)
    inputs.push_back(cases::input_values(c.inputs[k], DType::float32, k).to_doubles());
  const Values expected = c.reference(inputs);
  EXPECT_LT(distance(c.apply(make_inputs(c, DType::float32)).value().to_doubles(), expected), c.tolerance);

  for (std::size_t k = 0; k < c.inputs.size(); ++k)
    inputs[k] = cases::input_values(c.inputs[k], DType::float64, k).to_doubles();
  EXPECT_LT(distance(c.apply(make_inputs(c, DType::float64)).value().to_doubles(), c.reference(inputs)), 1e-12);
}

TEST_P(OpTest, GradientMatchesDifferences) {
  set_compute_threads(1);  // many tiny calls
  const OpCase& c = GetParam();
  const GradcheckResult result = gradcheck(c.apply, make_inputs(c, DType::float64));
  set_compute_threads(0);
  EXPECT_LT(result.worst, 1e-7) << result.str();
}

// Float32 has its own vendor kernels for the backward passes.
TEST_P(OpTest, Float32GradientsMatchFloat64) {
  const OpCase& c = GetParam();
  std::vector<Var> wide;
  for (const Var& input : make_inputs(c, DType::float32)) wide.emplace_back(cast(input.value(), DType::float64), true);
  const auto got = run(c, make_inputs(c, DType::float32)), expected = run(c, wide);
  for (std::size_t k = 0; k < got.size(); ++k) EXPECT_LT(distance(got[k], expected[k]), 5e-5) << "result " << k;
}

// An operation keeps only what the needed gradients read: each must come out the same when it is the only
// one.
TEST_P(OpTest, EachGradientAloneIsTheSame) {
  const OpCase& c = GetParam();
  const auto all = run(c, make_inputs(c, DType::float32));
  for (std::size_t k = 0; k < c.inputs.size(); ++k) {
    std::vector<Var> inputs = make_inputs(c, DType::float32);
    for (std::size_t other = 0; other < inputs.size(); ++other) inputs[other].set_requires_grad(other == k);
    const auto alone = run(c, inputs);
    EXPECT_EQ(alone[k + 1], all[k + 1]) << "input " << k;
    for (std::size_t other = 0; other < inputs.size(); ++other) EXPECT_EQ(alone[other + 1].empty(), other != k);
  }
}

/// Skips the test where there is no GPU.
#define SKIP_WITHOUT_GPU(gpu)                   \
  try {                                         \
    backend(gpu);                               \
  } catch (const Error& error) {                \
    GTEST_SKIP() << "no GPU: " << error.what(); \
  }

/// Forward and backward in a 16-bit type against float32 on the CPU, on equal inputs.
void expect_close_to_float32(const OpCase& c, DType dtype, double tolerance, Device device = {}) {
  const std::vector<Var> narrow = make_inputs(c, dtype, device);
  std::vector<Var> wide;
  for (const Var& input : narrow) wide.emplace_back(cast(input.value().to(Device{}), DType::float32), true);
  const auto got = run(c, narrow), expected = run(c, wide);
  for (std::size_t k = 0; k < got.size(); ++k) EXPECT_LT(distance(got[k], expected[k]), tolerance) << "result " << k;
  for (const Var& input : narrow) EXPECT_EQ(input.grad().dtype(), dtype);
}

/// Each rounding errs by half of the last place, and sums are float32.
double tolerance_of(const OpCase& c, DType dtype) {
  return c.roundings * (dtype == DType::bfloat16 ? 0x1p-8 : 0x1p-11) + 1e-4;
}
/// On a GPU libraries may round on the way.
double tolerance_on_gpu(const OpCase& c, DType dtype) {
  return std::max(dtype == DType::bfloat16 ? 1e-2 : 2e-3, tolerance_of(c, dtype));
}

constexpr Device kGpu{DeviceKind::cuda, 0};

TEST_P(OpTest, Bfloat16IsCloseToFloat32) {
  expect_close_to_float32(GetParam(), DType::bfloat16, tolerance_of(GetParam(), DType::bfloat16));
}
TEST_P(OpTest, Float16IsCloseToFloat32) {
  expect_close_to_float32(GetParam(), DType::float16, tolerance_of(GetParam(), DType::float16));
}

TEST_P(OpTest, GpuMatchesCpu) {
  SKIP_WITHOUT_GPU(kGpu);
  const OpCase& c = GetParam();
  for (const auto& [dtype, tolerance] : {std::pair{DType::float32, 5e-5}, {DType::float64, 1e-10}}) {
    const auto got = run(c, make_inputs(c, dtype, kGpu)), expected = run(c, make_inputs(c, dtype));
    for (std::size_t k = 0; k < got.size(); ++k)
      EXPECT_LT(distance(got[k], expected[k]), tolerance) << name_of(dtype) << ", result " << k;
  }
}

// Where a GPU has other algorithms for 16 bits, fused attention among them, whose deterministic form is another graph.
TEST_P(OpTest, GpuIn16BitsIsCloseToFloat32) {
  SKIP_WITHOUT_GPU(kGpu);
  for (const PlanChoice choice : {PlanChoice::heuristic, PlanChoice::deterministic}) {
    const PlanChoiceScope plans(choice);
    expect_close_to_float32(GetParam(), DType::bfloat16, tolerance_on_gpu(GetParam(), DType::bfloat16), kGpu);
    expect_close_to_float32(GetParam(), DType::float16, tolerance_on_gpu(GetParam(), DType::float16), kGpu);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, OpTest, testing::ValuesIn(cases::op_cases()), [](const auto& info) {
  return std::regex_replace(info.param.name, std::regex("[^A-Za-z0-9]"), "_");
});

/// Every name that the sources of engine/ops give to record().
std::set<std::string> recorded_operations() {
  std::set<std::string> names;
  const std::regex call(R"re(record\(\s*"([a-z0-9_]+)")re");
  for (const auto& entry : std::filesystem::directory_iterator(AB_SOURCE_DIR "/engine/ops")) {
    std::ifstream file(entry.path());
    std::stringstream text;
    text << file.rdbuf();
    const std::string source = text.str();
    for (std::sregex_iterator match(source.begin(), source.end(), call), end; match != end; ++match)
      names.insert((*match)[1]);
  }
  return names;
}

TEST(OpCases, CoverEveryRecordedOperation) {
  if (!std::filesystem::exists(AB_SOURCE_DIR)) GTEST_SKIP() << "installed without the sources in " AB_SOURCE_DIR;
  const std::set<std::string> recorded = recorded_operations();
  ASSERT_GE(recorded.size(), 14u) << "engine/ops was not read";
  std::set<std::string> covered, names;
  for (const OpCase& c : cases::op_cases()) {
    EXPECT_TRUE(recorded.contains(c.op)) << c.name << " names an operation that nothing records";
    EXPECT_TRUE(names.insert(c.name).second) << c.name << " appears twice";
    covered.insert(c.op);
  }
  for (const std::string& name : recorded)
    EXPECT_TRUE(covered.contains(name)) << name << " has no case in op_cases.cpp";
}

TEST(Gradcheck, SeesAWrongGradient) {
  const auto twice = [](const std::vector<Var>& in) {
    return record("twice", add(in[0].value(), in[0].value()), {in[0]}, [](const Tensor& dy) {
      Tensor dx = add(dy, dy);
      dx.data<double>()[3] *= 1.001;
      return Gradients{dx};
    });
  };
  const GradcheckResult result = gradcheck(twice, {Var(cases::input_values({6}, DType::float64, 0), true)});
  EXPECT_GT(result.worst, 1e-5);
  EXPECT_EQ(result.element, 3);
}

TEST(Linear, BackwardComputesOnlyWhatIsNeeded) {
  const Tensor dy = cases::input_values({3, 4}, DType::float32, 0), x = cases::input_values({3, 5}, DType::float32, 1);
  const LinearGrads grads = linear_backward(dy, x, {}, {.dx = false, .dw = true, .db = false});
  EXPECT_TRUE(grads.dw.defined());
  EXPECT_FALSE(grads.dx.defined() || grads.db.defined());
}

// Libraries are told by how many bytes addresses divide: here one factor after the other begins where a row ends.
TEST(GpuGemm, TakesMatricesAtAnyAddressOnAGpu) {
  SKIP_WITHOUT_GPU(kGpu);
  for (const DType dtype : {DType::float32, DType::bfloat16})
    for (int odd = 0; odd < 3; ++odd) {
      const auto matrix = [&](int index, Device device) {
        const Tensor rows = cases::input_values({6, 5}, dtype, static_cast<std::size_t>(index)).to(device);
        return index == odd ? rows.slice(1, 6) : rows.slice(0, 5);
      };
      const auto product = [&](Device device) {
        const Tensor c = matrix(2, device);
        backend(device).gemm({}, matrix(0, device), matrix(1, device), c);
        return c.to_doubles();
      };
      EXPECT_LT(distance(product(kGpu), product(Device{})), dtype == DType::float32 ? 1e-5 : 1e-2) << odd;
    }
}

TEST(BatchNorm, TrainingMovesTheRunningStatistics) {
  const Var x(Tensor::from(std::vector<float>{1, 3, 5, 7}, Shape{4, 1}));
  const Var one(Tensor::from(std::vector<float>{1}, Shape{1}));
  BatchNormStats stats{Tensor::zeros({1}), Tensor::from(std::vector<float>{1}, Shape{1})};
  batch_norm(x, one, one, stats, true);
  EXPECT_NEAR(stats.running_mean.item(), 0.1 * 4, 1e-6);
  EXPECT_NEAR(stats.running_var.item(), 0.9 + 0.1 * 20.0 / 3.0, 1e-6);  // unbiased
  batch_norm(x, one, one, stats, false);
  EXPECT_NEAR(stats.running_mean.item(), 0.1 * 4, 1e-6);
}

// Sums are cut by shape, not by thread: a run gives the same bits on any number of cores.
TEST(Threads, DoNotChangeResults) {
  const auto results = [](int threads) {
    set_compute_threads(threads);
    const Var x(cases::input_values({8, 16, 16, 67}, DType::float32, 0), true);
    const Var gamma(cases::input_values({67}, DType::float32, 1), true);
    BatchNormStats stats{Tensor::zeros({67}), Tensor::zeros({67})};
    const Var y = batch_norm(x, gamma, gamma, stats, true, Activation::relu, x);
    backward(record("probe", Tensor::zeros({1}), {y}, [dy = y.value()](const Tensor&) { return Gradients{dy}; }));
    const std::vector<Values> values{y.value().to_doubles(),
                                     x.grad().to_doubles(),
                                     gamma.grad().to_doubles(),
                                     column_sums(x.value()).to_doubles(),
                                     {sum_of_squares(x.value())}};
    set_compute_threads(0);
    return values;
  };
  const auto one = results(1);
  EXPECT_EQ(results(2), one);
  EXPECT_EQ(results(3), one);
}

TEST(BatchNorm, SurvivesALargeMean) {
  Tensor x(Shape{512, 1, 1, 3});
  fill_normal(x, 1000.0, 0.5, Philox{.seed = 1});
  BatchNormStats stats{Tensor::zeros({3}), Tensor::zeros({3}), 1.0f};
  const Var one(Tensor::from(std::vector<float>{1, 1, 1}, Shape{3}));
  batch_norm(Var(x), one, one, stats, true);
  for (double var : stats.running_var.to_doubles()) EXPECT_NEAR(var, 0.25, 0.04);
}

TEST(BatchNorm, TakesTheSumsThatItIsGiven) {
  const Var x(cast(Tensor::from(std::vector<float>{1, 3, 5, 7}, Shape{4, 1}), DType::bfloat16));
  const Var one(Tensor::from(std::vector<float>{1}, Shape{1}));
  const Tensor twice = Tensor::from(std::vector<float>{2 * 16, 4 * 84}, Shape{2, 1});  // of 2 x
  BatchNormStats stats{Tensor::zeros({1}), Tensor::zeros({1}), 1.0f};
  batch_norm(x, one, one, stats, true, Activation::none, {}, twice);
  EXPECT_NEAR(stats.running_mean.item(), 2 * 4, 1e-6);
  EXPECT_NEAR(stats.running_var.item(), 4 * 20.0 / 3.0, 1e-5);
  batch_norm(x, one, one, stats, false, Activation::none, {}, twice);
  EXPECT_NEAR(stats.running_mean.item(), 2 * 4, 1e-6) << "evaluation";
  EXPECT_THROW(batch_norm(x, one, one, stats, true, Activation::none, {}, Tensor({1, 2})), Error);
}

TEST(BatchNorm, KeepsAffineParametersInFloat32ForBfloat16) {
  const Var x(cases::input_values({4, 2, 2, 5}, DType::bfloat16, 0), true);
  const Var gamma(cases::input_values({5}, DType::float32, 1), true);
  BatchNormStats stats{Tensor::zeros({5}), Tensor::zeros({5})};
  const Var y = batch_norm(x, gamma, gamma, stats, true);
  EXPECT_EQ(y.value().dtype(), DType::bfloat16);
  backward(record("probe", Tensor::zeros({1}, DType::bfloat16), {y},
                  [dy = y.value()](const Tensor&) { return Gradients{dy}; }));
  EXPECT_EQ(x.grad().dtype(), DType::bfloat16);
  EXPECT_EQ(gamma.grad().dtype(), DType::float32);
}

TEST(MaxPool, TiesGoToTheFirstAndNanIsSeen) {
  const Var x(Tensor::from(std::vector<float>{2, 2, 1, 2}, Shape{1, 2, 2, 1}), true);
  backward(max_pool2d(x, {}));
  EXPECT_EQ(x.grad().to_doubles(), (Values{1, 0, 0, 0}));
  const Var bad(Tensor::from(std::vector<float>{2, NAN, 3, 2}, Shape{1, 2, 2, 1}));
  EXPECT_TRUE(std::isnan(max_pool2d(bad, {}).value().item()));
}

TEST(Loss, CountsWhatStandsBeforeTheLabel) {
  const Tensor logits = Tensor::from(std::vector<float>{3, 1, 2, 2, 2, 2, NAN, NAN, NAN}, Shape{3, 3});
  const Tensor labels = Tensor::from(std::vector<std::int64_t>{2, 1, 0}, Shape{3});
  EXPECT_EQ(label_positions(logits, labels).to_doubles(), (Values{1, 1, 2}));
}

TEST(Loss, HugeLogitsStayFinite) {
  const Var logits(Tensor::from(std::vector<float>{1e4f, -1e4f}, Shape{1, 2}), true);
  const Var loss = softmax_cross_entropy(logits, Tensor::from(std::vector<std::int64_t>{1}, Shape{1}));
  EXPECT_NEAR(loss.value().item(), 2e4, 1);
  backward(loss);
  EXPECT_EQ(logits.grad().to_doubles(), (Values{1, -1}));
}

TEST(Loss, IsNanOnAGpuForALabelOutOfRange) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_unavailable_reason();
  const Device gpu{DeviceKind::cuda, 0};
  const Var logits(Tensor::zeros({300, 3}, DType::float32, gpu));
  for (const std::int64_t label : {-1, 3}) {
    std::vector<std::int64_t> of_rows(300, 0);
    of_rows.back() = label;
    const Tensor labels = Tensor::from(of_rows, {300}, gpu);
    EXPECT_TRUE(std::isnan(softmax_cross_entropy(logits, labels).value().item()));
    EXPECT_THROW(label_positions(logits.value(), labels), Error) << "evaluation waits for its results anyway";
  }
}

template <class F> std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

TEST(OpErrors, SayWhatDoesNotFit) {
  const auto t = [](const Shape& shape, DType type = DType::float32) { return Var(Tensor::zeros(shape, type)); };
  const auto labels = [](std::int64_t label) { return Tensor::from(std::vector<std::int64_t>{label}, Shape{1}); };
  BatchNormStats stats{Tensor::zeros({3}), Tensor::zeros({3})};
  const std::vector<std::pair<std::string, std::function<void()>>> calls{
      {"linear: x [2, 3] does not fit w [4, 5]",
       [&] {
         linear(t({2, 3}), t({4, 5}), {});
       }},
      {"linear: b [3]",
       [&] {
         linear(t({2, 3}), t({4, 3}), t({3}));
       }},
      {"linear: x is float32 but w is float64",
       [&] {
         linear(t({2, 3}), t({4, 3}, DType::float64), {});
       }},
      {"matmul: a [2, 3] does not fit",
       [&] {
         matmul(t({2, 3}), t({2, 3}));
       }},
      {"conv2d: w [4, 3, 3, 2]",
       [&] {
         conv2d(t({1, 5, 5, 3}), t({4, 3, 3, 2}), {}, {});
       }},
      {"conv2d: the kernel of w",
       [&] {
         conv2d(t({1, 2, 2, 3}), t({4, 3, 3, 3}), {}, {});
       }},
      {"conv2d: stride 0",
       [&] {
         conv2d(t({1, 5, 5, 3}), t({4, 3, 3, 3}), {}, {.stride = 0});
       }},
      {"larger batch",
       [&] {
         batch_norm(t({1, 3}), t({3}), t({3}), stats, true);
       }},
      {"one value per channel of x",
       [&] {
         batch_norm(t({4, 3}), t({2}), t({3}), stats, true);
       }},
      {"running statistics must be",
       [&] {
         batch_norm(t({4, 5}), t({5}), t({5}), stats, true);
       }},
      {"the residual [4, 2]",
       [&] {
         batch_norm(t({4, 3}), t({3}), t({3}), stats, true, Activation::none, t({4, 2}));
       }},
      {"kernel 3 is larger than",
       [&] {
         max_pool2d(t({1, 2, 2, 1}), {.kernel = 3});
       }},
      {"at most half the kernel",
       [&] {
         avg_pool2d(t({1, 4, 4, 1}), {.padding = 2});
       }},
      {"1 labels are not in [0, 3)",
       [&] {
         softmax_cross_entropy(t({1, 3}), labels(3));
       }},
      {"1 labels are not in [0, 3)",
       [&] {
         label_positions(t({1, 3}).value(), labels(-1));
       }},
      {"smoothing 1 is not in",
       [&] {
         softmax_cross_entropy(t({1, 3}), labels(0), 1.0f);
       }},
  };
  for (const auto& [expected, call] : calls) {
    const std::string message = message_of(call);
    EXPECT_NE(message.find(expected), std::string::npos) << "expected: " << expected << "\n     got: " << message;
  }
}

/// A run that diverges must not look healthy: not every library's fused ReLU keeps what it was given.
TEST(FusedReluOnCpuAndGpu, KeepsNan) {
  std::vector<Device> devices{{}};
  if (cuda_device_count() > 0) devices.push_back({DeviceKind::cuda, 0});
  for (const Device device : devices)
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
      const auto filled = [&](const Shape& shape, double value) {
        const Tensor t(shape, dtype, device);
        fill(t, value);
        return t;
      };
      const Tensor x = filled({2, 4, 4, 64}, 1), bias = filled({64}, -1);
      fill(x.slice(0, 1), std::numeric_limits<double>::quiet_NaN());  // the first of two images
      const Tensor of_conv = conv2d_forward(x, filled({64, 3, 3, 64}, -1), bias, {.padding = 1}, Activation::relu);
      const Tensor of_linear = linear_forward(x.view({32, 64}), filled({64, 64}, -1), bias, Activation::relu);
      for (const Tensor& y : {of_conv, of_linear}) {
        const std::vector<double> values = y.to_doubles();
        const auto half = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
        EXPECT_TRUE(std::all_of(values.begin(), half, [](double v) { return std::isnan(v); })) << name_of(dtype);
        EXPECT_TRUE(std::all_of(half, values.end(), [](double v) { return v == 0; })) << name_of(dtype);
      }
    }
}

}  // namespace
}  // namespace ab
