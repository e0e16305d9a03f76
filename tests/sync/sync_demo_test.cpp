// SPDX-License-Identifier: MIT
//
// DeMo: its transform, and laws of its momentum, payload and bytes. method_golden_test.cpp compares a whole run with a program
// of its own.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "engine/kernels/random.h"
#include "engine/kernels/tiles.h"
#include "engine/sync/demo.h"
#include "tests/exchange_steps.h"
#include "tests/thread_team.h"

namespace ab {
namespace {

using test::ExchangeSteps;
using test::norm;
using test::on_ranks;
using test::plus;

// Parts of one tile and of six, and of one run and of three.
const std::vector<test::NamedShape> kDemoShapes = {
    {"conv", {8, 3, 3, 4}}, {"bias", {10}}, {"linear", {67, 131}}, {"v", {130}}};

ExchangeSteps::Make demo(const DemoOptions& options, DType wire = DType::float32, double rate = 0.5) {
  return [=](Replica replica, Comm& world) {
    return std::make_unique<DemoStrategy>(std::move(replica), world, options, LrSchedule{.peak = rate},
                                          CompressionStart{.gradients = {.dtype = wire}});
  };
}

double cosine(int u, int x) {
  return std::sqrt((u == 0 ? 1.0 : 2.0) / 64) * std::cos(std::numbers::pi * (2 * x + 1) * u / 128);
}

/// A 64×64 weight that is one cosine.
Tensor wave(int u, int v, double scale) {
  const Tensor g({64, 64});
  for (int y = 0; y < 64; ++y)
    for (int x = 0; x < 64; ++x) g.data<float>()[64 * y + x] = static_cast<float>(scale * cosine(u, y) * cosine(v, x));
  return g;
}

TEST(Demo, TheCosineTransformIsOrthonormalAndItsInverseGivesTheTilesBack) {
  constexpr std::int64_t rows = 2 * 64 + 3;  // two tiles, three runs
  const Tensor buffer({rows, 64}), scratch({rows, 64});
  fill_normal(buffer, 0, 1, {1, 2});
  const Tensor x = buffer.clone();
  const TileDct dct{Device{}};
  dct.forward(buffer, 2, scratch);
  const auto at = [](const Tensor& t, std::int64_t row, int column) {
    return double{t.data<float>()[64 * row + column]};
  };
  for (const auto& [u, v] : {std::pair{0, 0}, {1, 5}, {63, 2}, {17, 63}}) {
    double of_tile = 0, of_run = 0;
    for (int j = 0; j < 64; ++j) {
      for (int i = 0; i < 64; ++i) of_tile += cosine(u, i) * at(x, 64 + i, j) * cosine(v, j);
      of_run += at(x, 130, j) * cosine(v, j);
    }
    EXPECT_NEAR(at(buffer, 64 + u, v), of_tile, 1e-5);
    EXPECT_NEAR(at(buffer, 130, v), of_run, 1e-5);
  }
  for (const auto& [begin, end] : {std::pair{0, 64}, {64, 128}, {130, 131}})
    EXPECT_NEAR(norm(buffer.slice(begin, end).to_doubles()) / norm(x.slice(begin, end).to_doubles()), 1, 1e-6);
  dct.inverse(buffer, 2, scratch);
  EXPECT_LT(norm(plus(buffer.to_doubles(), x.to_doubles(), -1)), 1e-6 * norm(x.to_doubles()));
}

TEST(Demo, ARankAloneThatSendsEverythingTakesTheSignsOfItsGradient) {
  on_ranks(1, [](Comm& world) {
    ExchangeSteps steps(world, kDemoShapes, demo({.topk = 4096}));
    for (int step = 0; step < 3; ++step) {
      std::vector<Tensor> gradients = steps.draw();
      gradients[3].set_zero();
      steps.step(gradients);
      for (std::size_t i = 0; i < 3; ++i) {
        const std::vector<double> g = gradients[i].to_doubles(), sign = steps.gradient(i);
        for (std::size_t j = 0; j < g.size(); ++j)
          ASSERT_TRUE(std::abs(g[j]) < 1e-4 || sign[j] == (g[j] > 0 ? 1 : -1)) << kDemoShapes[i].name << j;
        EXPECT_LT(norm(steps.saved("demo." + kDemoShapes[i].name + ".residual")), 1e-5 * norm(g)) << "nothing is left";
      }
      EXPECT_EQ(norm(steps.gradient(3)), 0) << "zeros have no sign";
    }
  });
}

TEST(Demo, AllCoefficientsWithoutSignsAreTheMeanGradientOfDataParallelTraining) {
  for (const double decay : {0.0, 0.999})
    on_ranks(3, [&](Comm& world) {
      ExchangeSteps steps(world, kDemoShapes, demo({.topk = 4096, .decay = decay, .sign = false}));
      for (int step = 0; step < 6; ++step) {
        const std::vector<Tensor> gradients = steps.draw();
        steps.step(gradients);
        for (std::size_t i = 0; i < kDemoShapes.size(); ++i) {
          const std::vector<double> mean = test::mean_over(world, gradients[i].to_doubles());
          EXPECT_LT(norm(plus(steps.gradient(i), mean, -1)), 1e-6 * norm(mean)) << kDemoShapes[i].name << step;
        }
      }
    });
}

TEST(Demo, WhatIsSentAndWhatStaysAreTheOldMomentumAndTheGradient) {
  for (const DType wire : {DType::float32, DType::bfloat16, DType::float16})
    on_ranks(1, [&](Comm& world) {
      ExchangeSteps steps(world, kDemoShapes, demo({.topk = 5, .decay = 0.9, .sign = false}, wire));
      for (int step = 0; step < 4; ++step) {
        const std::vector<Tensor> gradients = steps.draw();
        std::vector<std::vector<double>> old;
        for (const auto& [name, shape] : kDemoShapes) old.push_back(steps.saved("demo." + name + ".residual"));
        steps.step(gradients);
        for (std::size_t i = 0; i < kDemoShapes.size(); ++i) {
          const std::vector<double> stays = steps.saved("demo." + kDemoShapes[i].name + ".residual");
          const std::vector<double> all = plus(gradients[i].to_doubles(), old[i], 0.9);
          EXPECT_LT(norm(plus(plus(steps.gradient(i), stays), all, -1)), 2e-6 * norm(all)) << kDemoShapes[i].name;
          EXPECT_LT(norm(stays), norm(all));
        }
      }
    });
}

TEST(Demo, ACoefficientIsTheMeanOverTheRanksThatHaveSentIt) {
  on_ranks(3, [](Comm& world) {
    ExchangeSteps steps(world, {{"w", {64, 64}}}, demo({.topk = 1, .sign = false}));
    const int rank = world.rank();
    steps.step({rank == 0 ? wave(1, 2, 8) : rank == 1 ? wave(7, 0, 3) : wave(1, 2, 4)});
    const std::vector<double> mean = plus(wave(1, 2, 6).to_doubles(), wave(7, 0, 3).to_doubles());
    EXPECT_LT(norm(plus(steps.gradient(0), mean, -1)), 1e-5);
  });
}

TEST(Demo, AGradientThatIsNotFiniteChangesNoMomentum) {
  for (std::size_t where = 0; where < kDemoShapes.size(); ++where)
    for (const DType wire : {DType::float32, DType::float16})
      on_ranks(3, [&](Comm& world) {
        ExchangeSteps steps(world, kDemoShapes, demo({.topk = 3}, wire));
        for (int step = 0; step < 3; ++step) steps.step(steps.draw());
        const auto values = [&] {
          std::map<std::string, std::vector<double>> all;
          const StateDict saved = steps.saved();
          for (const auto& [name, tensor] : saved.tensors()) all[name] = tensor.to_doubles();
          return all;
        };
        const auto before = values();
        std::vector<Tensor> gradients = steps.draw();
        // The largest half is 65,504: more arrives as infinity.
        const float bad = wire == DType::float16 ? 1e8f : std::numeric_limits<float>::infinity();
        if (world.rank() == 1) gradients[where].data<float>()[3] = bad;
        steps.step(gradients);
        EXPECT_EQ(values(), before);
        EXPECT_FALSE(std::isfinite(norm(steps.gradient(where)))) << "so that the update is left out";
        steps.step(steps.draw());
        for (std::size_t i = 0; i < kDemoShapes.size(); ++i)
          EXPECT_TRUE(std::isfinite(norm(steps.gradient(i)))) << where;
      });
}

TEST(Demo, SendsAValueAndAPlaceOfTwoBytesForEveryCoefficient) {
  for (const auto& [topk, wire, bytes] : {std::tuple{32, DType::float32, 11 * 32 * 6},
                                          {32, DType::bfloat16, 11 * 32 * 4},
                                          {31, DType::float32, 11 * 31 * 6 + 2},
                                          {100, DType::float16, (7 * 100 + 4 * 64) * 4}})
    for (const int ranks : {1, 3})
      on_ranks(ranks, [&, topk = topk, wire = wire, bytes = bytes](Comm& world) {
        ExchangeSteps steps(world, kDemoShapes, demo({.topk = topk}, wire));
        const double before = world.ledger().total().wire_bytes();
        steps.step(steps.draw());
        EXPECT_EQ(world.ledger().total().wire_bytes() - before, (ranks - 1) * bytes);
      });
}

TEST(Demo, LanesShareATile) {
  const TileGrid grid = tile_grid({67, 131});
  const Tensor x({67, 131}), tiles({grid.elements()}), back({67, 131});
  fill_normal(x, 0, 1, {1, 2});
  run_rows_in_threads(4, grid.tiles(), kernels::ToTile{grid, x.data<float>(), tiles.data<float>()});
  EXPECT_NEAR(norm(tiles.to_doubles()), norm(x.to_doubles()), 1e-4) << "the rest is zeros";
  run_rows_in_threads(4, grid.tiles(), kernels::FromTile<false>{grid, tiles.data<float>(), back.data<float>()});
  EXPECT_EQ(back.to_doubles(), x.to_doubles());

  constexpr std::int64_t k = 5, ranks = 2;
  const TileGroup group{.tiles = grid.tiles(), .size = 4096, .k = k};
  const TileEntries layout{.entries = group.entries()};
  const Tensor payloads = Tensor::zeros({ranks * layout.bytes()}, DType::uint8);
  std::vector<double> sum(static_cast<std::size_t>(tiles.numel())), count = sum;
  for (int rank = 0; rank < ranks; ++rank) {
    const Tensor payload = payloads.slice(rank * layout.bytes(), (rank + 1) * layout.bytes());
    if (rank == 1) tiles.data<float>()[70] = 9;  // which rank 0 has not sent
    auto* const values = static_cast<float*>(payload.raw());
    auto* const places = layout.places(payload, group);
    run_rows_in_threads(4, group.tiles, kernels::SelectOfTile<float>{tiles.data<float>(), values, places, 4096, k});
    for (std::int64_t i = 0; i < layout.entries; ++i) {
      const auto at = static_cast<std::size_t>(i / k * 4096 + places[i]);
      EXPECT_EQ(values[i], tiles.data<float>()[at]);
      sum[at] += values[i], count[at] += 1;
    }
  }
  const auto* const bytes = payloads.data<std::uint8_t>();
  const Tensor mean(tiles.shape()), counts(tiles.shape());
  run_rows_in_threads(4, group.tiles,
                      kernels::MeanOfSenders<float>{bytes, bytes + layout.value_bytes(), ranks, layout.bytes(), 4096, k,
                                                    mean.data<float>(), counts.data<float>()});
  for (std::size_t i = 0; i < sum.size(); ++i)
    EXPECT_NEAR(mean.data<float>()[i], count[i] > 0 ? sum[i] / count[i] : 0, 1e-6);
}

}  // namespace
}  // namespace ab
