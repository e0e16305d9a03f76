// SPDX-License-Identifier: MIT
//
// Who holds a gradient: backward functions may hand on what they were given, leaves get storage of their own.
#include <gtest/gtest.h>

#include "engine/autograd/var.h"
#include "engine/backend/backend.h"
#include "engine/kernels/elementwise.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/linear.h"
#include "tests/tensor_values.h"

namespace ab {
namespace {

Var sum_of(const Var& y) {
  return record("sum", Tensor::scalar(0, DType::float32), {y}, [shape = y.shape()](const Tensor& dy) {
    const Tensor ones(shape);
    fill(ones, dy.item());
    return Gradients{ones};
  });
}

std::vector<double> constant(double value) { return std::vector<double>(6, value); }

TEST(Autograd, LeavesThatAnAdditionJoinsHaveGradientsOfTheirOwn) {
  const Var a(normal_values({2, 3}, 1), true), b(normal_values({2, 3}, 2), true);
  backward(sum_of(add(a, b)));
  EXPECT_FALSE(a.grad().shares_storage_with(b.grad()));
  scale_in_place(a.grad(), 3.0);
  EXPECT_EQ(a.grad().to_doubles(), constant(3));
  EXPECT_EQ(b.grad().to_doubles(), constant(1));
}

// A scaled loss is scaled back in each leaf, one of which is reached through a view while the other's gradient waits.
TEST(Autograd, ALossScaleIsTakenOffEveryLeafOnce) {
  const Var a(normal_values({2, 3}, 1), true), b(normal_values({6}, 2), true), c(normal_values({2, 3}, 3), true);
  backward(sum_of(add(reshape(b, {2, 3}), add(a, add(c, a)))), 1.0, 8.0);
  EXPECT_EQ(a.grad().to_doubles(), constant(2));
  EXPECT_EQ(b.grad().to_doubles(), constant(1));
  EXPECT_EQ(c.grad().to_doubles(), constant(1));
}

// Results of operations have what came before added to it; leaves, and whoever comes first, have nothing to add.
TEST(Autograd, AGradientOntoAnotherIsGivenThatOne) {
  std::vector<double> addends;
  const auto triple = [&](const Var& x) {
    return record("triple", x.value(), {x}, [&addends](const Tensor& dy) {
      return Gradients{onto([&addends, dy](const Tensor& addend) {
        addends.push_back(addend.defined() ? addend.to_doubles()[0] : 0);
        const Tensor dx = addend.defined() ? addend.clone() : Tensor::zeros(dy.shape(), dy.dtype());
        axpy(3.0, dy, dx);
        return dx;
      })};
    });
  };
  Var leaf(normal_values({2, 3}, 1), true);
  const Var result = add(leaf, leaf);
  backward(sum_of(add(triple(result), add(result, triple(result)))), 1.0, 8.0);
  EXPECT_EQ(leaf.grad().to_doubles(), constant(14));
  EXPECT_EQ(addends.size(), 2u);
  EXPECT_EQ(std::count(addends.begin(), addends.end(), 0.0), 0) << "what went around them came first";
  addends.clear();
  leaf.clear_grad();
  backward(sum_of(triple(leaf)));
  backward(sum_of(triple(leaf)));
  EXPECT_EQ(leaf.grad().to_doubles(), constant(6));
  EXPECT_EQ(addends, std::vector<double>(2, 0.0));
}

TEST(Autograd, AGradientThatIsALossIsNotTheCallersNumber) {
  const Var loss(Tensor::scalar(2, DType::float32), true);
  const Tensor dloss = Tensor::scalar(4, DType::float32), unscale = Tensor::from(std::vector<float>{0.25f}, {1});
  backward(add(loss, loss), dloss, unscale);
  EXPECT_EQ(loss.grad().item(), 2);
  EXPECT_EQ(dloss.item(), 4);
}

// The gradient of a weight that was cast is summed in float32 and stays so; all else is given the type of its value.
TEST(Autograd, GradientsOfSixteenBitsFindTheirType) {
  const auto narrow = [](const Shape& shape, std::uint64_t stream) {
    return cast(normal_values(shape, stream), DType::bfloat16);
  };
  const Tensor x = narrow({4, 6}, 1);
  const auto gradient_of = [&](const Var& w, const Var& weight) {
    const Var y = linear(Var(x), weight, {});
    backward(record("sum", Tensor::scalar(0), {y}, [&](const Tensor&) { return Gradients{narrow({4, 3}, 2)}; }));
    return w.grad();
  };
  const Var kept(normal_values({3, 6}, 3), true);
  const Tensor dw = gradient_of(kept, reshape(cast(kept, DType::bfloat16), {3, 6}));
  const Tensor exact({3, 6}, DType::float64);
  backend({}).gemm({.transpose_a = true}, cast(narrow({4, 3}, 2), DType::float64), cast(x, DType::float64), exact);
  EXPECT_LT(relative_error(dw, exact), 1e-5) << "not rounded to bfloat16 on the way";

  const Var leaf(narrow({3, 6}, 4), true), before(narrow({3, 6}, 5), true), factor(narrow({6, 6}, 6), true);
  EXPECT_EQ(gradient_of(leaf, leaf).dtype(), DType::bfloat16);
  EXPECT_EQ(gradient_of(before, relu(before)).dtype(), DType::bfloat16);
  EXPECT_EQ(gradient_of(factor, linear(Var(narrow({3, 6}, 7)), factor, {})).dtype(), DType::bfloat16);

  const Var both(normal_values({4, 6}, 8), true), used = cast(both, DType::bfloat16);
  const Var y = add(linear(used, used, {}), matmul(used, Var(narrow({6, 4}, 9))));
  backward(record("sum", Tensor::scalar(0), {y}, [&](const Tensor&) { return Gradients{narrow({4, 4}, 10)}; }));
  EXPECT_EQ(both.grad().dtype(), DType::float32);
}

}  // namespace
}  // namespace ab
