// SPDX-License-Identifier: MIT
//
// Sums per channel that come with a convolution, for the batch norm behind it: on a GPU, where that is faster, and always
// on the GPU of tests/ptx.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/backend/plan_choice.h"
#include "engine/device/device.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/random.h"
#include "layers/norm.h"
#include "tests/ptx_gpu.h"

namespace ab {
namespace {

constexpr Device kCuda{DeviceKind::cuda, 0};

Tensor normal(const Shape& shape, double mean, DType dtype, Device device) {
  Tensor t(shape);
  fill_normal(t, mean, 1.0, Philox{.seed = 4, .stream = static_cast<std::uint64_t>(shape.numel())});
  return cast(t, dtype).to(device);
}

/// The sums that come with a convolution whose result has a mean of its own in every channel.
Tensor sums_of_conv(PlanChoice choice, DType dtype, Device device, Activation activation = Activation::none) {
  const PlanChoiceScope scope(choice);
  Tensor sums;
  conv2d_forward(normal({4, 8, 8, 8}, 0.5, dtype, device), normal({24, 3, 3, 8}, 0.0, dtype, device),
                 normal({24}, 3.0, dtype, device), {.padding = 1}, activation, &sums);
  return sums;
}

TEST(SummedConv, IsTriedOnlyWhereItMayPay) {
  const Device device = cuda_device_count() > 0 ? kCuda : Device{};
  EXPECT_FALSE(sums_of_conv(PlanChoice::heuristic, DType::bfloat16, device).defined());
  EXPECT_FALSE(sums_of_conv(PlanChoice::deterministic, DType::bfloat16, device).defined());
  EXPECT_FALSE(sums_of_conv(PlanChoice::timed, DType::float32, device).defined()) << "a variance needs more digits";
  EXPECT_FALSE(sums_of_conv(PlanChoice::timed, DType::bfloat16, device, Activation::relu).defined());
  EXPECT_FALSE(sums_of_conv(PlanChoice::timed, DType::bfloat16, Device{}).defined()) << "on a CPU";
}

TEST(SummedConv, SumsAreThoseOfTheResult) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU: " << cuda_unavailable_reason();
  const PlanChoiceScope scope(PlanChoice::timed);
  for (const auto& [kernel, options] : {std::pair{3, Conv2dOptions{.stride = 2, .padding = 1}}, {1, Conv2dOptions{}}})
    for (const auto& [dtype, has_bias] : {std::pair{DType::bfloat16, false},
                                          {DType::bfloat16, true},
                                          {DType::float16, false},
                                          {DType::float16, true}}) {
      const Tensor x = normal({4, 16, 16, 16}, 0.5, dtype, kCuda),
                   w = normal({72, kernel, kernel, 16}, 0.0, dtype, kCuda);
      const Tensor bias = has_bias ? normal({72}, 3.0, dtype, kCuda) : Tensor();
      Tensor sums;
      const Tensor y = conv2d_forward(x, w, bias, options, Activation::none, &sums);
      EXPECT_TRUE(sums.defined() || !on_ptx_gpu());
      if (!sums.defined()) continue;
      std::vector<double> expected(2 * 72), sizes(72);
      const std::vector<double> values = y.to_doubles(), got = sums.to_doubles();
      const std::vector<double> alone = conv2d_forward(x, w, bias, options).to_doubles();
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_NEAR(values[i], alone[i], 0.02 * std::fmax(1, std::abs(alone[i]))) << i;
        expected[i % 72] += values[i];
        sizes[i % 72] += std::abs(values[i]);
        expected[72 + i % 72] += values[i] * values[i];
      }
      // What is added up may not be rounded to 16 bits yet.
      for (std::size_t c = 0; c < 72; ++c) {
        EXPECT_NEAR(got[c], expected[c], 1e-3 * sizes[c]) << c;
        EXPECT_NEAR(got[72 + c], expected[72 + c], 2e-3 * expected[72 + c]) << c;
      }
    }
}

/// y and the gradients of x and the filter through a convolution and its batch norm, and the moved running variance.
std::vector<std::vector<double>> train_pair(PlanChoice choice, bool training) {
  const PlanChoiceScope scope(choice);
  Conv2d conv("conv", 16, 32, 3, {.padding = 1}, true, Build{.device = kCuda});
  BatchNorm2d norm("norm", 32, Build{.device = kCuda});
  conv.set_training(training);
  norm.set_training(training);
  const Var x(normal({8, 6, 6, 16}, 0.5, DType::bfloat16, kCuda), true);
  const SummedVar convolved = conv.forward_summed(x);
  EXPECT_LE(convolved.sums.defined(), training && choice == PlanChoice::timed);
  if (on_ptx_gpu()) {
    EXPECT_EQ(convolved.sums.defined(), training && choice == PlanChoice::timed);
  }
  const Var y = norm.forward(convolved, Activation::relu);
  backward(record("probe", Tensor::zeros({1}, DType::bfloat16, kCuda), {y},
                  [dy = y.value()](const Tensor&) { return Gradients{dy}; }));
  return {y.value().to_doubles(), x.grad().to_doubles(), inventory_of(conv).params[0]->value.grad().to_doubles(),
          inventory_of(norm).buffers[1].value.to_doubles()};
}

TEST(SummedConv, ABiasBeforeABatchNormHasNoGradient) {
  Conv2d conv("conv", 3, 8, 3, {.padding = 1}, true, Build{});
  BatchNorm2d norm("norm", 8, Build{});
  Inventory inventory;
  conv.list(inventory);
  Var weight = inventory.params[0]->value, bias = inventory.params[1]->value;
  const Var x(normal({4, 6, 6, 3}, 0.5, DType::float32, {}));
  const Tensor dy = normal({4, 6, 6, 8}, 0.1, DType::float32, {});
  const auto backward_from = [&](const SummedVar& y) {
    weight.clear_grad(), bias.clear_grad();
    backward(record("probe", Tensor::scalar(0, DType::float32), {norm.forward(y, Activation::relu)},
                    [=](const Tensor&) { return Gradients{dy}; }));
    return weight.grad().to_doubles();
  };
  const std::vector<double> summed_out = backward_from({conv.forward(x)});
  for (const double v : bias.grad().to_doubles()) EXPECT_LT(std::abs(v), 1e-4);
  EXPECT_EQ(backward_from(conv.forward_summed(x)), summed_out);
  for (const double v : bias.grad().to_doubles()) EXPECT_EQ(v, 0);
}

TEST(SummedConv, ABatchNormMakesTheSameOfThem) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU: " << cuda_unavailable_reason();
  for (const bool training : {true, false}) {
    const auto got = train_pair(PlanChoice::timed, training), expected = train_pair(PlanChoice::heuristic, training);
    for (std::size_t k = 0; k < got.size(); ++k) {
      double largest = 1;
      for (double v : expected[k]) largest = std::fmax(largest, std::abs(v));
      for (std::size_t i = 0; i < got[k].size(); ++i)
        ASSERT_NEAR(got[k][i], expected[k][i], 1e-2 * largest) << "training " << training << " result " << k;
    }
  }
}

}  // namespace
}  // namespace ab
