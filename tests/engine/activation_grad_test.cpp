// SPDX-License-Identifier: MIT
//
// The way back through an activation: products multiply by act'(z) while they compute the gradient of act(z), and
// autograd does it for everybody else.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "engine/device/device.h"
#include "engine/kernels/activation.h"
#include "engine/kernels/elementwise.h"
#include "engine/ops/conv.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/linear.h"
#include "tests/gradcheck.h"
#include "tests/tensor_values.h"

namespace ab {
namespace {

constexpr Activation kActivations[] = {Activation::relu, Activation::gelu};

Var leaf(const Shape& shape, std::uint64_t stream, DType dtype = DType::float64) {
  return Var(cast(normal_values(shape, stream), dtype), true);
}

std::vector<Device> devices() {
  std::vector<Device> list{{}};
  if (cuda_device_count() > 0) list.push_back({DeviceKind::cuda, 0});
  return list;
}

/// Ends the record with a given dy.
void pull(const Var& y, const Tensor& dy) {
  const Tensor loss = Tensor::zeros({1}, y.value().dtype(), y.value().device());
  backward(record("pull", loss, {y}, [dy](const Tensor&) { return Gradients{dy}; }));
}

using Function = std::function<Var(const std::vector<Var>&)>;

void expect_right_gradients(const Function& f, const std::vector<Var>& inputs) {
  const GradcheckResult result = gradcheck(f, inputs);
  EXPECT_LT(result.worst, 1e-7) << result.str();
}

TEST(ActivationGrad, ReachesEveryKindOfUser) {
  for (const Activation activation : kActivations) {
    const auto hidden = [=](const std::vector<Var>& in) { return linear(in[0], in[1], in[2], activation); };
    const std::vector<Var> inputs{leaf({4, 5}, 1), leaf({6, 5}, 2), leaf({6}, 3), leaf({6, 6}, 4)};
    const std::vector<Function> users{
        [=](const auto& in) { return linear(hidden(in), in[3], {}); },
        [=](const auto& in) { return linear(hidden(in), in[3], {}, activation); },
        [=](const auto& in) { return add(hidden(in), hidden(in)); },
        [=](const auto& in) { return relu(gelu(hidden(in))); },
        [=](const auto& in) { return matmul(hidden(in), in[3]); },
    };
    for (const Function& user : users)
      expect_right_gradients([&](const auto& in) { return add(user(in), linear(in[0], matmul(in[3], in[1]), {})); },
                             inputs);
  }
}

// Some users multiply in their products, others leave it to autograd.
TEST(ActivationGrad, OfSeveralUsersAddsUp) {
  for (const Activation activation : kActivations) {
    const auto f = [=](const std::vector<Var>& in) {
      const Var h = linear(in[0], in[1], in[2], activation);
      return add(add(linear(h, in[3], {}), h), add(linear(h, in[3], in[2], activation), relu(h)));
    };
    expect_right_gradients(f, {leaf({4, 5}, 1), leaf({6, 5}, 2), leaf({6}, 3), leaf({6, 6}, 4)});

    const auto of_images = [=](const std::vector<Var>& in) {
      const Var h = conv2d(in[0], in[1], in[2], {.padding = 1}, activation);
      return add(conv2d(h, in[3], {}, {.padding = 1}), add(h, conv2d(h, in[4], {}, {})));
    };
    expect_right_gradients(of_images, {leaf({2, 4, 3, 2}, 1), leaf({3, 3, 3, 2}, 2), leaf({3}, 3),
                                       leaf({3, 3, 3, 3}, 4), leaf({3, 1, 1, 3}, 5)});
  }
}

TEST(ActivationGrad, StopsAtWhatIsNoProduct) {
  const Tensor seed = Tensor::from(std::vector<std::int64_t>{3}, {1});
  for (const Activation activation : kActivations) {
    const auto f = [=](const std::vector<Var>& in) {
      const Var h = dropout(linear(in[0], in[1], {}, activation), 0.4f, seed, 5);
      return linear(h, in[2], {});
    };
    expect_right_gradients(f, {leaf({4, 5}, 1), leaf({6, 5}, 2), leaf({3, 6}, 3)});
  }
}

// What autograd would multiply by is gone before its turn comes: in the hook of the user's weight.
TEST(ActivationGrad, IsAppliedByTheProductThatYieldsTheGradient) {
  for (const bool is_conv : {false, true})
    for (const Activation activation : kActivations) {
      const auto gradient_of_x = [&](bool spoilt) {
        const Var x = is_conv ? leaf({2, 3, 3, 4}, 1) : leaf({7, 4}, 1);
        Var w = is_conv ? leaf({4, 3, 3, 4}, 2) : leaf({4, 4}, 2);
        const Var h = activation == Activation::relu ? relu(x) : gelu(x);
        const Var y = is_conv ? conv2d(h, w, {}, {.padding = 1}) : linear(h, w, {});
        const Tensor saved = h.activation_grad().saved;
        if (spoilt) w.set_grad_ready_hook([saved] { fill(saved, std::numeric_limits<double>::quiet_NaN()); });
        pull(y, leaf(y.shape(), 3).value());
        return x.grad().to_doubles();
      };
      EXPECT_EQ(gradient_of_x(true), gradient_of_x(false));
    }
}

/// y and the gradients of x, w and b of two linear layers with an activation between them: an operation of its own
/// whose result is used by something that is no product, or part of both layers.
std::vector<std::vector<double>> two_layers(Activation activation, DType dtype, Device device, bool separate) {
  const auto at = [&](const Shape& shape, std::uint64_t stream) {
    return Var(cast(normal_values(shape, stream), dtype).to(device), true);
  };
  const Var x = at({40, 24}, 1), w = at({32, 24}, 2), b = at({32}, 3), w2 = at({16, 32}, 4);
  Var h = linear(x, w, b, separate ? Activation::none : activation);
  if (separate) h = activation == Activation::relu ? relu(h) : gelu(h);
  const Var y = linear(separate ? add(h, Var(Tensor::zeros(h.shape(), dtype, device))) : h, w2, {});
  pull(y, cast(normal_values(y.shape(), 5), dtype).to(device));
  return {y.value().to_doubles(), x.grad().to_doubles(), w.grad().to_doubles(), b.grad().to_doubles()};
}

TEST(ActivationGrad, IsThatOfSeparatePassesOnCpuAndGpu) {
  for (const Device device : devices())
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16})
      for (const Activation activation : kActivations) {
        const auto fused = two_layers(activation, dtype, device, false);
        const auto separate = two_layers(activation, dtype, device, true);
        const double tolerance = dtype == DType::float32 ? 1e-5 : dtype == DType::float16 ? 4e-3 : 3e-2;
        for (std::size_t k = 0; k < fused.size(); ++k) {
          double largest = 1;
          for (const double v : separate[k]) largest = std::fmax(largest, std::abs(v));
          for (std::size_t i = 0; i < fused[k].size(); ++i)
            ASSERT_NEAR(fused[k][i], separate[k][i], tolerance * largest)
                << name_of(dtype) << ", result " << k << ", element " << i;
        }
      }
}

// The same numbers as those of the kernel that it replaces, where the product is the same too.
TEST(ActivationGrad, OnACpuHasTheBitsOfSeparatePasses) {
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16, DType::float16})
    for (const Activation activation : kActivations) {
      const auto values = [&](const Shape& shape, std::uint64_t stream) {
        return cast(normal_values(shape, stream), dtype);
      };
      const Tensor dy = values({9, 21}, 1), w = values({21, 35}, 2), saved = values({9, 35}, 3);
      fill(dy.slice(0, 1), std::numeric_limits<double>::quiet_NaN());
      fill(saved.slice(1, 2), std::numeric_limits<double>::infinity());
      const LinearNeeds needs{.dx = true, .dw = false, .db = false};
      const Tensor folded = linear_backward(dy, {}, w, needs, {activation, saved}).dx;
      const Tensor expected = activation_backward({activation, saved}, linear_backward(dy, {}, w, needs).dx);
      EXPECT_EQ(std::memcmp(folded.raw(), expected.raw(), expected.bytes()), 0) << name_of(dtype);

      const Tensor image = dy.slice(0, 8).view({2, 2, 2, 21}), filter = values({21, 3, 3, 5}, 4);
      const Tensor pixels = values({2, 2, 2, 5}, 5);
      const Conv2dSpec spec = conv2d_spec(pixels.shape(), filter.shape(), {.padding = 1});
      const Tensor dx = conv2d_backward_data(image, spec, filter, {.grad = {activation, pixels}});
      const Tensor expected_dx = activation_backward({activation, pixels}, conv2d_backward_data(image, spec, filter));
      EXPECT_EQ(std::memcmp(dx.raw(), expected_dx.raw(), dx.bytes()), 0) << name_of(dtype);
    }
}

TEST(ActivationGrad, IsKeptOnlyWhereAGradientWillCome) {
  const Var x = leaf({3, 4}, 1), w = leaf({5, 4}, 2);
  EXPECT_TRUE(linear(x, w, {}, Activation::gelu).activation_grad().defined());
  EXPECT_FALSE(linear(x, w, {}).activation_grad().defined());
  EXPECT_FALSE(linear(x.detach(), w.detach(), {}, Activation::gelu).activation_grad().defined());
  EXPECT_FALSE(relu(x).detach().activation_grad().defined());
  const NoGradScope no_grad;
  EXPECT_FALSE(linear(x, w, {}, Activation::gelu).activation_grad().defined());
}

}  // namespace
}  // namespace ab
