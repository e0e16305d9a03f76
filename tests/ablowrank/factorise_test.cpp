// SPDX-License-Identifier: MIT
//
// Weights, their factors, and factored layers against the dense layer they stand for.
#include <gtest/gtest.h>

#include <cmath>

#include "ablowrank/factorise.h"
#include "engine/autograd/var.h"
#include "engine/kernels/random.h"
#include "layers/conv2d.h"
#include "layers/linear.h"
#include "layers/weight.h"

namespace ab {
namespace {

Tensor random_tensor(const Shape& shape, std::uint64_t stream) {
  Tensor t(shape);
  fill_normal(t, 0.0f, 1.0f, Philox{7, stream});
  return t;
}

double difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to_doubles(), y = b.to_doubles();
  double distance = 0, size = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    distance += (x[i] - y[i]) * (x[i] - y[i]);
    size += y[i] * y[i];
  }
  return std::sqrt(distance / std::max(size, 1e-30));
}

Tensor product_of(const FactorPair& pair) { return product(pair.outer, pair.inner); }

TEST(Factorise, FoldGivesTheWeightBack) {
  for (const Shape& shape : {Shape{40, 12}, Shape{12, 40}, Shape{16, 72}, Shape{64, 16}, Shape{9, 9}}) {
    const Tensor w2 = random_tensor(shape, 1);
    const LowRank low_rank = decompose(w2, nullptr);
    EXPECT_EQ(low_rank.r(), std::min(w2.dim(0), w2.dim(1)));
    for (Gauge gauge : {Gauge::split_sigma, Gauge::orthonormal})
      for (bool trained_outer : {false, true})
        EXPECT_LT(difference(product_of(apply_gauge(low_rank, gauge, trained_outer)), w2), 2e-6) << shape.str();
  }
}

TEST(Factorise, CutKeepsTheLeadingDirections) {
  // W = U diag(4, 2, 1, 0.1 …) V: cutting to three leaves the tail as the error.
  const LowRank full = decompose(random_tensor({30, 20}, 2), nullptr);
  std::vector<float> sigma(20, 0.1f);
  sigma[0] = 4, sigma[1] = 2, sigma[2] = 1;
  const Tensor w =
      product_of(apply_gauge({full.outer, Tensor::from(sigma, {20}), full.inner}, Gauge::split_sigma, true));
  RankPolicy policy;
  policy.ratio = 0;
  const LowRank cut = decompose(w, &policy);
  ASSERT_EQ(cut.r(), 3);
  const double expected = std::sqrt(17 * 0.01 / (16 + 4 + 1 + 17 * 0.01));
  EXPECT_NEAR(difference(product_of(apply_gauge(cut, Gauge::split_sigma, true)), w), expected, 1e-5);
}

TEST(Factorise, OrthonormalGaugeFreezesAnOrthonormalFactor) {
  const LowRank low_rank = decompose(random_tensor({24, 10}, 3), nullptr);
  const Tensor inner = apply_gauge(low_rank, Gauge::orthonormal, true).inner;
  const Tensor gram = product(inner, inner, false, true);
  for (int i = 0; i < 10; ++i)
    for (int j = 0; j < 10; ++j) EXPECT_NEAR(gram.data<float>()[i * 10 + j], i == j ? 1.0f : 0.0f, 1e-5f);
}

TEST(Factorise, TangentLiftIsExactOnTheTangentSpace) {
  const LowRank low_rank = decompose(random_tensor({24, 18}, 4), nullptr);
  const Tensor u = low_rank.outer, v = low_rank.inner;
  RankPolicy policy;
  policy.ratio = 1.0 / 3;
  const LowRank cut = decompose(random_tensor({24, 18}, 4), &policy);
  // W = P V + U Q lies in the tangent space at U Σ V; its projections give it back.
  const Tensor w = product(random_tensor({24, cut.r()}, 5), cut.inner);
  const Tensor w_right = product(cut.outer, random_tensor({cut.r(), 18}, 6));
  const Tensor sum = Tensor::from(
      [&] {
        std::vector<float> s;
        for (std::int64_t i = 0; i < w.numel(); ++i) s.push_back(w.data<float>()[i] + w_right.data<float>()[i]);
        return s;
      }(),
      w.shape());
  const Tensor x = product(sum, cut.inner, false, true), y = product(cut.outer, sum, true, false);
  EXPECT_LT(difference(lift_from_tangent(cut.outer, cut.inner, x, y), sum), 2e-6);
}

/// Makes the only weight of a layer factored, cut to half its directions, and returns the matrix it stands for.
Tensor split_in_place(Layer& layer, Weight::Mode mode, Execution execution) {
  Weight& weight = *inventory_of(layer).weights[0];
  RankPolicy policy;
  FactorPair pair = apply_gauge(decompose(weight.matrix(), &policy), Gauge::split_sigma, weight.trains_outer(mode));
  const Tensor w = product_of(pair);
  weight.factorise(pair.outer, pair.inner, mode);
  weight.set_execution(execution);
  return w;
}

struct Case {
  bool transposed;
  Weight::Mode mode;
  Execution execution;
};

class FactoredLayer : public testing::TestWithParam<Case> {
 protected:
  /// Forward and gradients of the factored layer against the same layer with W = A·B as a dense weight:
  /// dA and dB follow from dW by the chain rule.
  void compare(Layer& factored, Layer& dense, const Tensor& x) {
    const auto [transposed, mode, execution] = GetParam();
    const Tensor w = split_in_place(factored, mode, execution);
    Weight& weight = *inventory_of(factored).weights[0];
    ASSERT_EQ(weight.transposed(), transposed);
    EXPECT_FALSE(weight.dense().value.value().defined());
    Weight& whole = *inventory_of(dense).weights[0];
    whole.restore(w);
    for (Layer* layer : {&factored, &dense})
      for (Param* p : inventory_of(*layer).params)
        if (p->name.ends_with("bias")) p->value.value().copy_from(random_tensor(p->value.shape(), 8));

    const Var xf(x, true), xd(x, true);
    const Var yf = factored.forward(xf), yd = dense.forward(xd);
    EXPECT_LT(difference(yf.value(), yd.value()), 1e-5);

    const Tensor dy = random_tensor(yf.shape(), 9);
    backward(weighted_sum(yf, dy));
    backward(weighted_sum(yd, dy));
    EXPECT_LT(difference(xf.grad(), xd.grad()), 1e-5);
    const Tensor dw = whole.dense().value.grad().view({weight.rows(), weight.columns()});
    const Tensor outer = weight.outer().value.value(), inner = weight.inner().value.value().view({weight.r(), -1});
    const bool train_outer = weight.outer().trainable();
    const Tensor expected = train_outer ? product(dw, inner, false, true) : product(outer, dw, true, false);
    const Param& trained = train_outer ? weight.outer() : weight.inner();
    const Param& frozen = train_outer ? weight.inner() : weight.outer();
    EXPECT_LT(difference(trained.value.grad(), expected), 2e-5);
    EXPECT_FALSE(frozen.value.grad().defined());
  }

 private:
  static Var weighted_sum(const Var& y, const Tensor& dy) {
    double total = 0;
    const std::vector<double> a = y.value().to_doubles(), b = dy.to_doubles();
    for (std::size_t i = 0; i < a.size(); ++i) total += a[i] * b[i];
    return record("weighted_sum", Tensor::scalar(total), {y}, [dy](const Tensor&) { return Gradients{dy}; });
  }
};

TEST_P(FactoredLayer, Linear) {
  const std::int64_t in = GetParam().transposed ? 20 : 8, out = GetParam().transposed ? 12 : 20;
  Linear factored("fc", in, out, {}), dense("fc", in, out, {});
  compare(factored, dense, random_tensor({6, in}, 10));
}

TEST_P(FactoredLayer, Conv2d) {
  const std::int64_t in = GetParam().transposed ? 6 : 2, out = GetParam().transposed ? 8 : 24;
  const Conv2dOptions options{.stride = 2, .padding = 1};
  Conv2d factored("conv", in, out, 3, options, true, {}), dense("conv", in, out, 3, options, true, {});
  compare(factored, dense, random_tensor({2, 7, 7, in}, 11));
}

TEST_P(FactoredLayer, Conv2dBySpatialFactors) {
  const std::int64_t in = GetParam().transposed ? 8 : 2, out = GetParam().transposed ? 6 : 24;
  const Conv2dOptions options{.stride = 2, .padding = 1};
  Conv2d factored("conv", in, out, 3, options, true, {}), dense("conv", in, out, 3, options, true, {});
  Weight& weight = *inventory_of(factored).weights[0];
  weight.set_conv_factors(ConvFactors::spatial);
  ASSERT_EQ(weight.rows(), 3 * out);
  compare(factored, dense, random_tensor({2, 7, 10, in}, 11));
  EXPECT_EQ(weight.inner().value.shape(), (Shape{weight.r(), 1, 3, in}));
}

TEST(SpatialFactors, AreOfConvolutionsThatMoveOverTheirInput) {
  const auto rows = [](std::int64_t kernel, const Conv2dOptions& options) {
    Conv2d conv("conv", 4, 8, kernel, options, true, {});
    Weight& weight = *inventory_of(conv).weights[0];
    weight.set_conv_factors(ConvFactors::spatial);
    return weight.rows();
  };
  EXPECT_EQ(rows(3, {.padding = 1}), 24);
  EXPECT_EQ(rows(5, {.stride = 2, .padding = 2}), 40);
  EXPECT_EQ(rows(1, {}), 8);
  EXPECT_EQ(rows(7, {}), 8) << "it may see an image as a whole";
}

// At stride 2 the inner factor is applied to twice as many positions as the outer one:
// (512 + 256) · 3 · 96 r <= 256 · 3 · 9216 + 3 · 9216 r, that is r <= 36.6.
TEST(SpatialFactors, RunWhereTheyAreCheaperThanW) {
  const auto run = [](std::int64_t r) {
    Conv2d conv("conv", 32, 32, 3, {.stride = 2, .padding = 1}, true, {});
    Weight& weight = *inventory_of(conv).weights[0];
    weight.set_conv_factors(ConvFactors::spatial);
    weight.factorise(random_tensor({96, r}, 1), random_tensor({r, 96}, 2), Weight::Mode::train_both);
    return run_factors(weight, conv2d_spec({4, 16, 16, 32}, weight.shape(), {.stride = 2, .padding = 1}),
                       DType::float32);
  };
  EXPECT_TRUE(run(36));
  EXPECT_FALSE(run(37));
}

TEST(SpatialFactors, AreTakenWhereTheyAreExpectedAlone) {
  Conv2d conv("conv", 4, 8, 3, {.padding = 1}, true, {});
  Weight& weight = *inventory_of(conv).weights[0];
  const auto take = [&](std::int64_t rows) {
    weight.factorise(random_tensor({rows, 2}, 1), random_tensor({2, 288 / rows}, 2), Weight::Mode::train_both);
  };
  EXPECT_THROW(take(24), Error);
  weight.set_conv_factors(ConvFactors::spatial);
  EXPECT_THROW(take(8), Error);
  take(24);
  EXPECT_EQ(weight.inner().value.shape(), (Shape{2, 1, 3, 4}));
}

INSTANTIATE_TEST_SUITE_P(Orientations, FactoredLayer, testing::ValuesIn([] {
                           std::vector<Case> cases;
                           for (bool transposed : {false, true})
                             for (Weight::Mode mode : {Weight::Mode::train_a, Weight::Mode::train_b})
                               for (Execution execution : {Execution::factors, Execution::form_w})
                                 cases.push_back({transposed, mode, execution});
                           return cases;
                         }()),
                         [](const auto& info) {
                           const Case& c = info.param;
                           return fmt::format("{}_{}_{}", c.transposed ? "wide" : "tall",
                                              c.mode == Weight::Mode::train_a ? "a" : "b",
                                              c.execution == Execution::factors ? "factors" : "formed");
                         });

TEST(Weight, RestoringGivesADenseWeightAgain) {
  Conv2d layer("conv", 4, 8, 3, {}, false, {});
  const Tensor w = split_in_place(layer, Weight::Mode::train_a, Execution::factors);
  Weight& weight = *inventory_of(layer).weights[0];
  EXPECT_EQ(inventory_of(layer).params.size(), 2u);
  weight.restore(w);
  EXPECT_EQ(inventory_of(layer).params.size(), 1u);
  EXPECT_EQ(weight.dense().value.shape(), (Shape{8, 3, 3, 4}));
  EXPECT_FALSE(weight.a().value.value().defined());
}

}  // namespace
}  // namespace ab
