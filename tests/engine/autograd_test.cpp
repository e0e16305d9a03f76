// SPDX-License-Identifier: MIT
//
// Who holds a gradient: backward functions may hand on what they were given, leaves get storage of their own.
#include <gtest/gtest.h>

#include "engine/autograd/var.h"
#include "engine/kernels/elementwise.h"
#include "engine/ops/elementwise.h"
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

}  // namespace
}  // namespace ab
