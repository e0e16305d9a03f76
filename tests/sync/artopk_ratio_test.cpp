// SPDX-License-Identifier: MIT
//
// AR-Topk's adaptive ratio: the choice by hand, and what it does to a run. sync_artopk_test.cpp has the rest of the method.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/sync/artopk.h"
#include "tests/exchange_steps.h"

namespace ab {
namespace {

using test::ExchangeSteps;
using Elements = std::vector<std::int64_t>;

TEST(ArtopkRatio, TriesAtLeastFourRatiosADecade) {
  EXPECT_EQ(adaptive_elements(0.001, 0.1, 1'000'000),
            (Elements{100'000, 56'234, 31'622, 17'782, 10'000, 5'623, 3'162, 1'778, 1'000}));
  EXPECT_EQ(adaptive_elements(0.001, 0.1, 297), (Elements{29, 16, 9, 5, 2, 1})) << "each number once";
  EXPECT_EQ(adaptive_elements(0.03, 0.1, 100), (Elements{10, 6, 4, 3})) << "at equal distances, both ends among them";
  EXPECT_EQ(adaptive_elements(0.01, 0.01, 1000), (Elements{10}));
}

TEST(ArtopkRatio, AGainIsTheShareOfTheSquaredLengthThatIsSent) {
  const Tensor x = Tensor::from(std::vector<float>{1, -4, 0, 3, -2, 0}, Shape{6});  // Σ x² = 30
  const std::vector<double> gains = gains_of(x, {6, 4, 2, 1});
  const double expected[] = {1, 1, 25.0 / 30, 16.0 / 30};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(gains[i], expected[i], 1e-6) << i;
  x.data<float>()[2] = NAN;
  for (const double gain : gains_of(x, {3, 1})) EXPECT_FALSE(std::isfinite(gain));
  for (const double gain : gains_of(Tensor::zeros({6}), {3, 1})) EXPECT_FALSE(std::isfinite(gain));
}

std::optional<std::size_t> best(const std::vector<RatioTrial>& trials) { return best_trial(trials); }

TEST(ArtopkRatio, WeighsTimeAgainstGainOverTheFront) {
  // Time 1, 1/3, 0 and loss 0, 1/4, 1: the largest of 0.6 · time and 0.4 · loss is 0.6, 0.2, 0.4.
  EXPECT_EQ(best({{10, 1}, {4, 0.8}, {1, 0.5}}), 1u);
  EXPECT_EQ(best({{10, 1}, {1, 0.5}}), 1u) << "0.6 against 0.4";
  // Time 0.9 and loss 1/9 in the middle: 0.54, still above 0.4.
  EXPECT_EQ(best({{10, 1}, {9.1, 0.9}, {1, 0.5}}), 2u);
  EXPECT_EQ(best({{7, 0.3}}), 0u);
}

TEST(ArtopkRatio, WhatIsBeatenInBothCountsForNothing) {
  EXPECT_EQ(best({{5, 0.5}, {4, 0.8}}), 1u);
  EXPECT_EQ(best({{1, 0.2}, {1, 0.9}}), 1u) << "as fast, and says more";
  EXPECT_EQ(best({{1, 0.5}, {1, 0.5}}), 0u) << "the first of equals";
  // On a scale that ends at 100 instead of 10 the first would be the best.
  EXPECT_EQ(best({{10, 1}, {4, 0.8}, {1, 0.5}, {100, 0.4}}), 1u);
}

TEST(ArtopkRatio, WithoutGainsThereIsNoChoice) {
  EXPECT_FALSE(best({}));
  EXPECT_FALSE(best({{10, 1}, {1, 0}}));
  EXPECT_FALSE(best({{10, std::nan("")}, {1, 0.5}}));
}

// --- Runs: 297 elements, of which 29, 16, 9, 5, 2 or 1 are sent.

constexpr int kRatioRanks = 8;
const std::vector<test::NamedShape> kRatioShapes = {{"conv", {8, 3, 3, 4}}, {"bias", {9}}};

ExchangeSteps::Make adaptive(std::int64_t every) {
  return [=](Replica replica, Comm& world) {
    const ArtopkOptions options{
        .ratio = 0.1, .mode = ArtopkOptions::Mode::automatic, .probe_every = every, .least_ratio = 0.001};
    return std::make_unique<ArtopkStrategy>(std::move(replica), world, options, CompressionStart{}, true);
  };
}

/// All of one size, but for `spikes` that hold nearly all of the squared length.
std::vector<Tensor> gradients(int spikes) {
  std::vector<Tensor> all;
  for (const auto& [name, shape] : kRatioShapes) {
    all.emplace_back(shape);
    std::fill_n(all.back().data<float>(), all.back().numel(), 1.0f);
  }
  for (int i = 0; i < spikes; ++i) all[0].data<float>()[7 * i] = 1000;
  return all;
}

// Where bytes alone cost time, it is as k; gains of equal elements are k/297. The largest of 0.6 · (k-1)/28 and
// 0.4 · (297/k - 297/29)/(297 - 297/29) is, from 29 elements on: 0.6, 0.32, 0.17, 0.086, 0.19, 0.4.
TEST(ArtopkRatio, ARunSendsWhatTheNetworkAndItsGradientsSuggest) {
  test::on_network(kRatioRanks, "latency=1us,bandwidth=8Mbps", [](Comm& world) {
    ExchangeSteps steps(world, kRatioShapes, adaptive(1));
    steps.step(gradients(0));
    EXPECT_EQ(steps.strategy().decision().at("elements"), 5);
    EXPECT_EQ(steps.strategy().decision().at("ring_steps_of_5"), 1);
    EXPECT_EQ(std::ranges::count_if(steps.gradient(0), [](double v) { return v != 0; }), 5);
    steps.step(gradients(2));
    EXPECT_EQ(steps.strategy().decision().at("elements"), 2) << "two hold it all";
    EXPECT_EQ(std::ranges::count_if(steps.gradient(0), [](double v) { return v != 0; }), 2);
    const LedgerEntry agreed = world.ledger().total_of_phase(ArtopkSwitch::kProbe);
    EXPECT_EQ(agreed.calls, 2);
    EXPECT_EQ(agreed.payload_bytes, 2 * 6 * 8);
  });
  test::on_network(kRatioRanks, "latency=1ms", [](Comm& world) {
    ExchangeSteps steps(world, kRatioShapes, adaptive(1));
    steps.step(gradients(0));
    EXPECT_EQ(steps.strategy().decision().at("elements"), 29) << "bytes cost nothing";
  });
}

TEST(ArtopkRatio, ARunGoesOnFromACheckpointAsIfNothingHadBeen) {
  test::on_network(kRatioRanks, "latency=1us,bandwidth=8Mbps", [](Comm& world) {
    const auto trained = [&](ExchangeSteps& steps, std::int64_t from, std::int64_t to) {
      for (std::int64_t step = from; step < to; ++step) steps.step(step / 3 == 1 ? gradients(2) : steps.draw());
    };
    ExchangeSteps whole(world, kRatioShapes, adaptive(3));
    trained(whole, 0, 9);
    EXPECT_GT(whole.strategy().decision().size(), 4u) << "of one number of elements only";
    for (std::int64_t stop = 1; stop < 9; ++stop) {
      ExchangeSteps first(world, kRatioShapes, adaptive(3)), second(world, kRatioShapes, adaptive(3));
      trained(first, 0, stop);
      second.state().step = stop;
      second.strategy().load(first.saved(), second.state());
      trained(second, stop, 9);
      EXPECT_EQ(second.strategy().decision(), whole.strategy().decision()) << stop;
      for (const std::size_t i : {0u, 1u}) EXPECT_EQ(second.gradient(i), whole.gradient(i)) << stop;
      EXPECT_EQ(second.saved("artopk.conv.residual"), whole.saved("artopk.conv.residual")) << stop;
    }
  });
}

}  // namespace
}  // namespace ab
