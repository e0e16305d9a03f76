// SPDX-License-Identifier: MIT
//
// Dion: laws of its momentum, factors and bytes. method_golden_test.cpp compares a whole run with a program of its own.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/kernels/low_rank.h"
#include "engine/sync/dion.h"
#include "tests/exchange_steps.h"
#include "tests/thread_team.h"

namespace ab {
namespace {

using test::ExchangeSteps;
using test::mean_over;
using test::norm;
using test::on_ranks;
using test::plus;

// Taller than wide, wider than tall, and a vector.
const std::vector<test::NamedShape> kDionShapes = {{"conv", {8, 3, 3, 4}}, {"linear", {12, 10}}, {"bias", {8}}};

ExchangeSteps::Make dion(double rank, double momentum = 0.95) {
  return [=](Replica replica, Comm& world) {
    return std::make_unique<DionStrategy>(std::move(replica), world, DionOptions{rank, momentum}, CompressionStart{});
  };
}

Tensor of_rank_one() {
  const Tensor g({12, 10});
  for (std::int64_t i = 0; i < 120; ++i) g.data<float>()[i] = static_cast<float>(std::sin(i / 10) * std::cos(i % 10));
  return g;
}

TEST(Dion, UpdatesAreThoseOfTheMeanGradientWhateverTheRanksRemember) {
  for (const int ranks : {1, 2, 4})
    on_ranks(ranks, [&](Comm& world) {
      const std::unique_ptr<Comm> self = make_self_comm();
      ExchangeSteps steps(world, kDionShapes, dion(0.5)), central(*self, kDionShapes, dion(0.5));
      for (int step = 0; step < 50; ++step) {
        const std::vector<Tensor> gradients = steps.draw();
        std::vector<Tensor> mean;
        for (const Tensor& g : gradients) {
          mean.push_back(g.clone());
          world.all_reduce(mean.back(), ReduceOp::mean);
        }
        steps.step(gradients), central.step(mean);
        for (std::size_t i = 0; i < kDionShapes.size(); ++i)
          EXPECT_LT(norm(plus(steps.gradient(i), central.gradient(i), -1)), 2e-5 * norm(central.gradient(i))) << step;
      }
      for (const char* momentum : {"dion.conv.residual", "dion.linear.residual"}) {
        const std::vector<double> own = steps.saved(momentum), of_mean = central.saved(momentum);
        EXPECT_LT(norm(plus(mean_over(world, own), of_mean, -1)), 1e-5 * norm(of_mean));
        if (ranks == 1) continue;
        EXPECT_GT(norm(plus(own, of_mean, -1)), 0.1 * norm(of_mean)) << "ranks remember what others do not";
      }
    });
}

TEST(Dion, RowsOfQHaveLengthOneAndUpdatesAreTheirProductWithOrthonormalRows) {
  on_ranks(2, [](Comm& world) {
    ExchangeSteps steps(world, kDionShapes, dion(0.5));
    for (int step = 0; step < 3; ++step) steps.step(steps.draw());
    for (const auto& [name, r, tall, flat] : {std::tuple{"conv", 4, 36, 8}, std::tuple{"linear", 5, 12, 10}}) {
      const auto p = steps.saved(fmt::format("dion.{}.p", name)), q = steps.saved(fmt::format("dion.{}.q", name));
      ASSERT_EQ(p.size(), static_cast<std::size_t>(r * tall));
      ASSERT_EQ(q.size(), static_cast<std::size_t>(r * flat));
      const auto dot = [](const std::vector<double>& v, int length, int a, int b) {
        double sum = 0;
        for (int i = 0; i < length; ++i)
          sum += v[static_cast<std::size_t>(a * length + i)] * v[static_cast<std::size_t>(b * length + i)];
        return sum;
      };
      for (int a = 0; a < r; ++a) {
        EXPECT_NEAR(dot(q, flat, a, a), 1, 1e-5);
        for (int b = 0; b < r; ++b) EXPECT_NEAR(dot(p, tall, a, b), a == b, 1e-5);
      }
    }
    // |PᵀQ|² = Σ |q|² = r, as the rows of P are orthonormal.
    EXPECT_NEAR(norm(steps.gradient(0)), std::sqrt(8.0 / 36 * 4), 1e-4);
    EXPECT_NEAR(norm(steps.gradient(1)), std::sqrt(12.0 / 10 * 5), 1e-4);
  });
}

TEST(Dion, ATransposedWeightTakesTransposedUpdates) {
  constexpr std::int64_t n = 6, m = 9;
  on_ranks(1, [&](Comm& world) {
    ExchangeSteps wide(world, {{"w", {n, m}}}, dion(0.5)), tall(world, {{"w", {m, n}}}, dion(0.5));
    for (int step = 0; step < 5; ++step) {
      const Tensor g = wide.draw()[0], transposed({m, n});
      for (std::int64_t i = 0; i < n * m; ++i) transposed.data<float>()[i % m * n + i / m] = g.data<float>()[i];
      wide.step({g}), tall.step({transposed});
      const std::vector<double> a = wide.gradient(0), b = tall.gradient(0);
      const double ratio = static_cast<double>(m) / static_cast<double>(n);  // of sqrt(9/6) and sqrt(6/9)
      for (std::int64_t i = 0; i < n * m; ++i)
        EXPECT_NEAR(b[static_cast<std::size_t>(i % m * n + i / m)], ratio * a[static_cast<std::size_t>(i)], 1e-5);
    }
  });
}

TEST(Dion, MomentumOfAConstantGradientOfTheSameRankSettles) {
  on_ranks(2, [](Comm& world) {
    ExchangeSteps steps(world, {{"linear", {12, 10}}}, dion(0.1));
    const Tensor g = of_rank_one();
    for (int step = 0; step < 400; ++step) steps.step({g});
    const std::vector<double> momentum = steps.saved("dion.linear.residual");
    EXPECT_LT(norm(plus(momentum, g.to_doubles(), -0.95 / 0.05)), 1e-3 * norm(momentum));
  });
}

TEST(Dion, RowsOfRoundingStayOutOfTheUpdate) {
  for (const DType wire : {DType::float32, DType::bfloat16})
    on_ranks(2, [&](Comm& world) {
      const auto make = [&](Replica replica, Comm& ranks) {
        return std::make_unique<DionStrategy>(std::move(replica), ranks, DionOptions{.rank = 0.3},
                                              CompressionStart{.gradients = {.dtype = wire}});
      };
      ExchangeSteps steps(world, {{"linear", {12, 10}}}, make);
      for (int step = 0; step < 8; ++step) steps.step({of_rank_one()});
      EXPECT_NEAR(norm(steps.gradient(0)), std::sqrt(12.0 / 10), 1e-2) << "one direction of three";
    });
}

TEST(Dion, LanesShareARowOfDirections) {
  const Tensor rows = Tensor::from<float>({3, 4, 0, 0, 0, 0, 0, 1e-9f, 0, 6, 8, 0}, {3, 4});
  const Tensor q({3, 4}), update({3, 4}), lengths({3});
  run_rows_in_threads(4, 3, kernels::RowLengths{rows.data<float>(), lengths.data<float>(), 4});
  run_rows_in_threads(4, 3,
                      kernels::SplitIntoDirections{lengths.data<float>(), rows.data<float>(), update.data<float>(),
                                                   q.data<float>(), 3, 4, 0.5f, 2.0f, 1e-6f});
  const std::vector<float> of_q{0.6f, 0.8f, 0, 0, 0, 0, 0, 0.0909091f, 0, 0.6f, 0.8f, 0};
  const std::vector<float> of_update{1.2f, 1.6f, 0, 0, 0, 0, 0, 0, 0, 1.2f, 1.6f, 0};
  const std::vector<float> of_rows{1.5f, 2, 0, 0, 0, 0, 0, 5e-10f, 0, 3, 4, 0};
  for (std::size_t i = 0; i < 12; ++i) {
    EXPECT_NEAR(q.span<float>()[i], of_q[i], 1e-6);
    EXPECT_NEAR(update.span<float>()[i], of_update[i], 1e-6);
    EXPECT_NEAR(rows.span<float>()[i], of_rows[i], 1e-6);
  }
}

TEST(Dion, ALayerWithoutGradientKeepsItsFactorAndTrainsLater) {
  on_ranks(2, [](Comm& world) {
    ExchangeSteps steps(world, kDionShapes, dion(0.5));
    const std::vector<double> q = steps.saved("dion.linear.q");
    std::vector<Tensor> gradients = steps.draw();
    gradients[1].set_zero();
    steps.step(gradients);
    EXPECT_EQ(steps.saved("dion.linear.q"), q);
    EXPECT_EQ(norm(steps.gradient(1)), 0);
    steps.step(steps.draw());
    EXPECT_NEAR(norm(steps.gradient(1)), std::sqrt(12.0 / 10 * 5), 1e-4);
  });
}

TEST(Dion, AGradientThatIsNotFiniteChangesNoMomentumAndNoFactor) {
  for (const std::size_t where : {0u, 1u, 2u})
    on_ranks(3, [&](Comm& world) {
      ExchangeSteps steps(world, kDionShapes, dion(0.5));
      for (int step = 0; step < 3; ++step) steps.step(steps.draw());
      const StateDict before = steps.saved();
      std::map<std::string, std::vector<double>> values;
      for (const auto& [name, tensor] : before.tensors()) values[name] = tensor.to_doubles();
      std::vector<Tensor> gradients = steps.draw();
      if (world.rank() == 1) gradients[where].data<float>()[3] = std::numeric_limits<float>::infinity();
      steps.step(gradients);
      const StateDict after = steps.saved();
      for (const auto& [name, tensor] : after.tensors()) EXPECT_EQ(tensor.to_doubles(), values[name]) << name;
      EXPECT_FALSE(std::isfinite(norm(steps.gradient(2)))) << "so that the update is left out";
      steps.step(steps.draw());
      for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(std::isfinite(norm(steps.gradient(i)))) << where;
    });
}

TEST(Dion, SendsBothFactorsOfWeightsAndTheRestInFull) {
  on_ranks(4, [](Comm& world) {
    for (const auto& [rank, bytes] : {std::pair{0.25, 3935232.0}, {0.125, 1969152.0}, {0.0625, 986112.0}}) {
      ExchangeSteps steps(world, {{"w", {512, 4608}}, {"bias", {512}}}, dion(rank));
      const double before = world.ledger().total().wire_bytes();
      steps.step(steps.draw());
      EXPECT_EQ(world.ledger().total().wire_bytes() - before, bytes);
    }
  });
}

}  // namespace
}  // namespace ab
