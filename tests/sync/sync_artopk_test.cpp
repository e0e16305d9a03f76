// SPDX-License-Identifier: MIT
//
// AR-Topk: its cost model against published figures, its steps, and how it switches. method_golden_test.cpp compares whole
// runs with programs of their own.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "engine/sync/artopk.h"
#include "tests/exchange_steps.h"
#include "tests/program_test.h"

namespace ab {
namespace {

using test::ExchangeSteps;
using test::mean_over;
using test::norm;
using test::on_ranks;
using test::plus;
using Mode = ArtopkOptions::Mode;

constexpr Mode kModes[] = {Mode::star, Mode::var, Mode::gather, Mode::layerwise, Mode::automatic};

ExchangeSteps::Make artopk(const ArtopkOptions& options, std::int64_t warmup = 0, bool network_is_given = false) {
  return [=](Replica replica, Comm& world) {
    return std::make_unique<ArtopkStrategy>(std::move(replica), world, options, CompressionStart{.dense_steps = warmup},
                                            network_is_given);
  };
}

// --- The cost model.

constexpr int kNodes = 8;
constexpr double kResnet18 = 11'689'512, kResnet50 = 25'557'032, kAlexnet = 61'100'840, kVit = 133.15e6;

Link link_of(double milliseconds, double gigabits) { return {milliseconds * 1e-3, gigabits * 1.25e8}; }
double milliseconds_by(ArtopkWay way, double elements, double ratio, const Link& link) {
  const double bytes = 4 * ratio * elements;
  return 1e3 * artopk_seconds(way, kNodes, {bytes, bytes, 2 * bytes}, link);
}

// Step times of the paper's tables, 4 ms and 20 Gbit/s, in ms. What is not communication follows from two of them.
TEST(ArtopkCost, GivesThePublishedStepTimes) {
  struct Row {
    double elements, dense_ring, dense_tree, star[3], selection;
  };
  const Row rows[] = {{kResnet18, 98.7, 146.2, {64.8, 49.7, 48.2}, 2.0},
                      {kResnet50, 152.5, 294.4, {100.8, 67.7, 64.4}, 3.1},
                      {kAlexnet, 230.6, 614, {129.5, 50.3, 42.4}, 2.0},
                      {kVit, 475, 1348.5, {276.3, 104.1, 86.9}, 2.6}};
  const Link link = link_of(4, 20);
  for (const Row& row : rows) {
    const double computing = row.dense_ring - 1e3 * ring_seconds(kNodes, 4 * row.elements, link);
    EXPECT_NEAR(computing + 1e3 * tree_seconds(kNodes, 4 * row.elements, link), row.dense_tree, 0.5);
    for (int i = 0; i < 3; ++i)
      EXPECT_NEAR(computing + row.selection +
                      milliseconds_by(ArtopkWay::tree, row.elements, std::pow(10, -1 - i), link),
                  row.star[i], 0.5)
          << row.elements << ", ratio 1e-" << i + 1;
  }
}

TEST(ArtopkCost, GivesThePublishedCommunicationTimes) {
  const auto expect = [](double elements, double ratio, double gigabits, double gather, double ring, double tree) {
    const Link link = link_of(1, gigabits);
    EXPECT_NEAR(milliseconds_by(ArtopkWay::gather, elements, ratio, link), gather, 0.06);
    EXPECT_NEAR(milliseconds_by(ArtopkWay::ring, elements, ratio, link), ring, 0.06);
    EXPECT_NEAR(milliseconds_by(ArtopkWay::tree, elements, ratio, link), tree, 0.06);
  };
  expect(kResnet18, 0.1, 10, 55.4, 34.8, 42.7);
  expect(kResnet18, 0.001, 10, 3.5, 17.2, 9.3);
  expect(kResnet50, 0.1, 1, 1148.0, 405.5, 745.0);
  expect(kAlexnet, 0.01, 5, 57.7, 35.6, 44.2);
}

TEST(ArtopkCost, CountsMessagesAndBytesOfEveryOperation) {
  const Link link{1, 100};  // a second, and 100 bytes a second
  EXPECT_DOUBLE_EQ(ring_seconds(8, 50, link), 14 + 1.75 * 0.5);
  EXPECT_DOUBLE_EQ(tree_seconds(8, 50, link), 6 + 6 * 0.5);
  EXPECT_DOUBLE_EQ(broadcast_seconds(8, 50, link), 3 + 3 * 0.5);
  EXPECT_DOUBLE_EQ(gather_seconds(8, 50, link), 3 + 7 * 0.5);
  const ArtopkPayload halves = artopk_payload(25, 2);  // 16-bit values in the sum alone
  EXPECT_DOUBLE_EQ(artopk_seconds(ArtopkWay::ring, 8, halves, link), 3 + 3 * 1.0 + 14 + 1.75 * 0.5);
  EXPECT_DOUBLE_EQ(artopk_seconds(ArtopkWay::gather, 8, halves, link), 3 + 7 * 2.0);
  for (const auto& seconds : {ring_seconds, tree_seconds, broadcast_seconds, gather_seconds})
    EXPECT_EQ(seconds(1, 50, link), 0);
}

// The paper's rules, as latency over seconds a byte, for 8 ranks: in units of the bytes of the indices.
TEST(ArtopkCost, SwitchesWhereThePapersRulesDo) {
  constexpr double kRingTree = (3 - 7.0 / 8) / (7 - 3), kRingGather = 1 - 1.0 / 8 - 3.0 / 14,
                   kTreeGather = 7.0 / 3 - 1.5;
  EXPECT_NEAR(kRingTree, 0.531, 5e-4);
  EXPECT_NEAR(kRingGather, 0.661, 5e-4);
  EXPECT_NEAR(kTreeGather, 0.833, 5e-4);
  const ArtopkPayload payload = artopk_payload(1000);
  const auto at = [&](double units) { return Link{units * payload.index_bytes * 1e-6, 1e6}; };
  EXPECT_EQ(fastest_way(8, payload, at(0.999 * kRingTree)), ArtopkWay::ring);
  EXPECT_EQ(fastest_way(8, payload, at(1.001 * kRingTree)), ArtopkWay::tree);
  EXPECT_EQ(fastest_way(8, payload, at(0.999 * kTreeGather)), ArtopkWay::tree);
  EXPECT_EQ(fastest_way(8, payload, at(1.001 * kTreeGather)), ArtopkWay::gather);
  const auto gap = [&](double units) {
    return artopk_seconds(ArtopkWay::ring, 8, payload, at(units)) -
           artopk_seconds(ArtopkWay::gather, 8, payload, at(units));
  };
  EXPECT_LT(gap(0.999 * kRingGather), 0);
  EXPECT_GT(gap(1.001 * kRingGather), 0);
}

TEST(ArtopkCost, FindsTheLinkThatTimesStandFor) {
  for (const int ranks : {2, 3, 8}) {
    const Link link = link_of(0.7, 3);
    const Link found =
        link_of_ring(ranks, 4, ring_seconds(ranks, 4, link), 1 << 20, ring_seconds(ranks, 1 << 20, link));
    EXPECT_NEAR(found.latency, link.latency, 1e-12);
    EXPECT_NEAR(found.bandwidth / link.bandwidth, 1, 1e-9);
  }
  const Link odd = link_of_ring(4, 4, 2e-3, 1 << 20, 1e-3);  // the larger one was faster
  EXPECT_GT(odd.bandwidth, 1e12);
  EXPECT_TRUE(std::isfinite(odd.bandwidth));
  EXPECT_GE(odd.latency, 0);
}

// --- Steps.

const std::vector<test::NamedShape> kArtopkShapes = {{"conv", {8, 3, 3, 4}}, {"bias", {9}}};
constexpr std::int64_t kArtopkElements = 8 * 36 + 9;

std::vector<double> joined(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> both = a;
  both.insert(both.end(), b.begin(), b.end());
  return both;
}

TEST(Artopk, WhatIsSentAndWhatIsLeftAreTheMeanGradient) {
  for (const Mode mode : kModes)
    for (const int ranks : {1, 3})
      on_ranks(ranks, [&](Comm& world) {
        ExchangeSteps steps(world, kArtopkShapes, artopk({.ratio = 0.05, .mode = mode, .probe_every = 2}));
        std::vector<double> left(kArtopkElements);
        for (int step = 0; step < 6; ++step) {
          const std::vector<Tensor> gradients = steps.draw();
          steps.step(gradients);
          const std::vector<double> m =
              mean_over(world, plus(joined(gradients[0].to_doubles(), gradients[1].to_doubles()), left));
          left = joined(steps.saved("artopk.conv.residual"), steps.saved("artopk.bias.residual"));
          const std::vector<double> sent = joined(steps.gradient(0), steps.gradient(1));
          EXPECT_LT(norm(plus(plus(mean_over(world, left), sent), m, -1)), 1e-5 * norm(m)) << step;
          const auto zeros = std::count(left.begin(), left.end(), 0.0),
                     some = std::ssize(sent) - std::count(sent.begin(), sent.end(), 0.0);
          EXPECT_EQ(zeros, mode == Mode::layerwise ? 14 + 1 : 14) << "of this rank";
          if (mode == Mode::star || mode == Mode::var) {
            EXPECT_EQ(some, 14) << "of all ranks";
          }
        }
      });
}

Tensor ones() { return Tensor::from(std::vector<float>(8, 1.0f), Shape{8}); }

/// One element is sent of a gradient whose largest is element `place` of every rank, `size` large.
int chosen(ExchangeSteps& steps, int place, float size) {
  Tensor gradient = ones();
  gradient.data<float>()[place] = size;
  steps.step({gradient});
  const std::vector<double> mean = steps.gradient(0);
  EXPECT_EQ(std::count(mean.begin(), mean.end(), 0.0), 7);
  return static_cast<int>(std::find_if(mean.begin(), mean.end(), [](double v) { return v != 0; }) - mean.begin());
}

TEST(Artopk, RanksChooseInTurnFromTheFirstCompressedStepOn) {
  on_ranks(3, [](Comm& world) {
    ExchangeSteps steps(world, {{"weight", {8}}}, artopk({.ratio = 0.125}, 2));
    for (int step = 0; step < 2; ++step) steps.step({ones()});
    float size = 100;
    for (int step = 0; step < 7; ++step, size *= 100) EXPECT_EQ(chosen(steps, world.rank(), size), step % 3) << step;
  });
}

TEST(Artopk, TheRankWithTheLargestSelectionChooses) {
  on_ranks(3, [](Comm& world) {
    ExchangeSteps steps(world, {{"weight", {8}}}, artopk({.ratio = 0.125, .mode = Mode::var}));
    float size = 100;
    for (const int loud : {2, 0, 1, 1}) {
      EXPECT_EQ(chosen(steps, world.rank(), world.rank() == loud ? -2 * size : size), loud);
      size *= 1000;
    }
    // Of equal ones the lowest: rank 0 is silent.
    ExchangeSteps equal(world, {{"weight", {8}}}, artopk({.ratio = 0.125, .mode = Mode::var}));
    EXPECT_EQ(chosen(equal, world.rank(), world.rank() == 0 ? 0.5f : size), 1);
  });
  EXPECT_EQ(leader_by_variance({1, 3, 2, 3}), 1);
  EXPECT_EQ(leader_by_variance({2, 2}), 0);
  EXPECT_EQ(leader_by_variance({1, std::nan(""), 2}), leader_by_variance({1, std::nan(""), 2}));
}

TEST(Artopk, LayersSelectForThemselves) {
  on_ranks(2, [](Comm& world) {
    ExchangeSteps steps(world, {{"first", {10}}, {"second", {40}}, {"bias", {3}}, {"third", {10}}},
                        artopk({.ratio = 0.1, .mode = Mode::layerwise}));
    // Every rank has large elements of its own: 2 · rank and the next, in every tensor, with tensors of any scale.
    std::vector<Tensor> gradients;
    float scale = 1;
    for (const std::int64_t n : {10, 40, 3, 10}) {
      Tensor g({n});
      for (std::int64_t i = 0; i < n; ++i)
        g.data<float>()[i] = scale * static_cast<float>(n - (i + n - world.rank()) % n);
      gradients.push_back(g);
      scale *= 1000;
    }
    steps.step(gradients);
    const std::size_t k[] = {1, 4, 1, 1};
    for (std::size_t t = 0; t < 4; ++t) {
      const std::vector<double> mean = steps.gradient(t);
      for (std::size_t i = 0; i < mean.size(); ++i) EXPECT_EQ(mean[i] != 0, i < k[t] + 1) << t << ", " << i;
    }
  });
}

TEST(Artopk, SendsWhatIsPublished) {
  const std::vector<test::NamedShape> large = {{"conv", {512, 3, 3, 512}}, {"bias", {512}}};
  const std::vector<Tensor> zeros = {Tensor::zeros({512, 3, 3, 512}), Tensor::zeros({512})};
  const std::pair<Mode, int> bytes[] = {
      {Mode::star, 21'231}, {Mode::var, 21'231 + 12}, {Mode::gather, 56'616}, {Mode::layerwise, 56'616 + 24}};
  for (const auto& [mode, expected] : bytes)
    on_ranks(4, [&, mode = mode, expected = expected](Comm& world) {
      ExchangeSteps steps(world, large, artopk({.ratio = 0.001, .mode = mode}));
      steps.step(zeros);
      EXPECT_EQ(world.ledger().total_of_phase(CompressedGradients::kCompressed).wire_bytes(), expected);
    });
}

TEST(Artopk, AGradientThatIsNotFiniteChangesNothingOnAnyRank) {
  std::vector<ArtopkOptions> all;
  for (const Mode mode : kModes) all.push_back({.ratio = 0.1, .mode = mode});
  all.push_back({.ratio = 0.1, .mode = Mode::automatic, .probe_every = 1, .least_ratio = 0.001});
  for (const ArtopkOptions& options : all)
    for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")})
      on_ranks(4, [&](Comm& world) {
        SCOPED_TRACE(static_cast<int>(options.mode));
        ExchangeSteps steps(world, kArtopkShapes, artopk(options, 1));
        for (int step = 0; step < 4; ++step) steps.step(steps.draw());
        std::map<std::string, std::vector<double>> before;
        const StateDict saved = steps.saved();
        for (const auto& [key, tensor] : saved.tensors()) before[key] = tensor.to_doubles();
        EXPECT_FALSE(before.empty());
        std::vector<Tensor> gradients = steps.draw();
        if (world.rank() == 2) gradients[0].data<float>()[5] = bad;
        steps.step(gradients);
        const StateDict after = steps.saved();
        for (const auto& [key, tensor] : after.tensors()) EXPECT_EQ(tensor.to_doubles(), before[key]) << key;
        EXPECT_FALSE(std::isfinite(norm(steps.gradient(0)) + norm(steps.gradient(1)))) << "so that it is left out";
        steps.step(steps.draw());
        for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(std::isfinite(norm(steps.gradient(i))));
      });
}

// --- Switching.

// For 14 elements of 297, by one rank a node: with fewer than five ranks a tree is never the fastest.
constexpr int kSwitchRanks = 8;
constexpr const char* kNetwork =
    "latency=1us,bandwidth=8Mbps; from 3: latency=1ms,bandwidth=1Gbps; "
    "from 6: latency=36us,bandwidth=8Mbps";

TEST(ArtopkSwitching, FollowsTheNetworkFromPeriodToPeriod) {
  const ArtopkPayload payload = artopk_payload(14);
  const NetworkShape shape = parse_network(kNetwork);
  const ArtopkWay ways[] = {ArtopkWay::ring, ArtopkWay::gather, ArtopkWay::tree};
  for (const int i : {0, 1, 2})
    ASSERT_EQ(fastest_way(kSwitchRanks, payload, shape.at(3 * i).links.inter_node), ways[i]) << i;
  test::on_network(kSwitchRanks, kNetwork, [&](Comm& world) {
    ExchangeSteps steps(world, kArtopkShapes,
                        artopk({.ratio = 0.05, .mode = Mode::automatic, .probe_every = 2}, 1, true));
    // Periods begin with steps 1, 3, 5 and 7.
    for (int step = 0; step < 9; ++step) {
      EXPECT_EQ(steps.strategy().follows_epochs(), step > 1);
      world.ledger().begin_step(step);
      steps.step(steps.draw());
    }
    EXPECT_EQ(steps.strategy().decision(), (std::map<std::string, std::int64_t>{{"ring_steps", 2},
                                                                                {"tree_steps", 2},
                                                                                {"gather_steps", 4},
                                                                                {"latency_ns", 36'000},
                                                                                {"bytes_per_second", 1'000'000}}));
    for (const auto& [key, entry] : world.ledger().entries()) {
      EXPECT_NE(key.phase, ArtopkSwitch::kProbe);
      if (key.phase != CompressedGradients::kCompressed) continue;
      const bool sums = key.collective == Collective::all_reduce;
      EXPECT_EQ(entry.calls, sums ? 2 : 4) << name_of(key.collective) << ", " << name_of(key.route.algorithm);
      EXPECT_TRUE(!sums || key.route.algorithm == AllReduce::ring || key.route.algorithm == AllReduce::tree);
      EXPECT_EQ(entry.payload_bytes,
                entry.calls * 14 * (key.collective == Collective::all_gather ? kSwitchRanks * 8 : 4));
    }
  });
}

TEST(ArtopkSwitching, GoesOnFromACheckpointAsIfNothingHadBeen) {
  test::on_network(kSwitchRanks, kNetwork, [&](Comm& world) {
    const auto make = artopk({.ratio = 0.05, .mode = Mode::automatic, .probe_every = 3}, 1, true);
    const auto trained = [&](ExchangeSteps& steps, std::int64_t from, std::int64_t to) {
      for (std::int64_t step = from; step < to; ++step) {
        world.ledger().begin_step(step);
        steps.step(steps.draw());
      }
    };
    ExchangeSteps whole(world, kArtopkShapes, make);
    trained(whole, 0, 9);
    for (std::int64_t stop = 2; stop < 9; ++stop) {
      ExchangeSteps first(world, kArtopkShapes, make), second(world, kArtopkShapes, make);
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

TEST(ArtopkSwitching, MeasuresANetworkThatNobodyHasDescribed) {
  on_ranks(3, [](Comm& world) {
    ExchangeSteps steps(world, kArtopkShapes, artopk({.ratio = 0.05, .mode = Mode::automatic, .probe_every = 2}));
    for (int step = 0; step < 5; ++step) steps.step(steps.draw());
    const auto decision = steps.strategy().decision();
    EXPECT_GT(decision.at("bytes_per_second"), 0);
    EXPECT_EQ(decision.at("ring_steps") + decision.at("tree_steps") + decision.at("gather_steps"), 5);
    const std::vector<double> counts{static_cast<double>(decision.at("ring_steps")),
                                     static_cast<double>(decision.at("latency_ns")),
                                     static_cast<double>(decision.at("bytes_per_second"))};
    EXPECT_EQ(mean_over(world, counts), counts) << "on all ranks alike";
    LedgerEntry all = world.ledger().total_of_phase(ArtopkSwitch::kProbe);
    EXPECT_EQ(all.calls, 3 * (4 + 3 + 1));
    EXPECT_EQ(all.payload_bytes, 3 * (4 * 4 + (3 << 20) + 16));
    EXPECT_EQ(world.ledger().phase(), CompressedGradients::kCompressed);
    EXPECT_EQ(world.ledger().route(Collective::all_reduce, world.ledger().layout_of({0, 1, 2}), 4).algorithm,
              AllReduce::direct)
        << "others go as before";
  });
}

// --- Runs and their plans.

class ArtopkPlan : public test::ProgramTest {
 protected:
  void train(const std::string& more) {
    const test::Outcome trained = run(fmt::format(
        "train --model mlp --dataset cifar10 --data-dir {} --train-samples 40 --val-samples 16 --batch-size 4 --steps 13 "
        "--lr 0.01 --ranks 3 --ranks-per-node 1 --method artopk --artopk.mode auto --artopk.probe-every 4 --out {} {}",
        small_cifar(), path("run"), more));
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    summary_ = nlohmann::json::parse(read_file(path("run/summary.json"), ErrorKind::data));
  }
  nlohmann::json plan(const std::string& more = "") {
    const test::Outcome outcome =
        run(fmt::format("plan --config {} --out {} {}", path("run/config.toml"), path("plan.json"), more));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return nlohmann::json::parse(read_file(path("plan.json"), ErrorKind::data));
  }
  nlohmann::json summary_;
};

TEST_F(ArtopkPlan, FollowsTheNetworkThatIsGiven) {
  for (const char* network : {"latency=1ms", "latency=1us,bandwidth=2Gbps"}) {
    train(fmt::format("--overwrite --network {}", network));
    const nlohmann::json planned = plan();
    EXPECT_FALSE(planned.at("plan").contains("least"));
    EXPECT_EQ(planned.at("wire_bytes_per_rank_by_phase"), summary_.at("wire_bytes_per_rank_by_phase")) << network;
    EXPECT_EQ(planned.at("sent_bytes_per_rank_total"), summary_.at("sent_bytes_per_rank_total")) << network;
  }
}

TEST_F(ArtopkPlan, HasBoundsAndFollowsTheDecisionsOfARun) {
  train("");
  const double sent = summary_.at("wire_bytes_per_rank_total");
  const nlohmann::json bounds = plan();
  EXPECT_LE(bounds.at("plan").at("least").at("wire_bytes_per_rank_total"), sent);
  EXPECT_GE(bounds.at("wire_bytes_per_rank_total"), sent);
  const nlohmann::json followed = plan("--decisions-from " + path("run"));
  EXPECT_FALSE(followed.at("plan").contains("least"));
  EXPECT_EQ(followed.at("wire_bytes_per_rank_by_phase"), summary_.at("wire_bytes_per_rank_by_phase"));
  EXPECT_EQ(followed.at("sent_bytes_per_rank_total"), summary_.at("sent_bytes_per_rank_total"));
  expect_failure(fmt::format("plan --config {} --steps 100 --decisions-from {}", path("run/config.toml"), path("run")),
                 2, "has not decided about");
}

TEST_F(ArtopkPlan, BoundsARatioThatAdaptsAndFollowsItsDecisions) {
  for (const char* network : {"", "--network latency=1us,bandwidth=2Gbps"}) {
    SCOPED_TRACE(network);
    train(fmt::format("--overwrite --artopk.least-ratio 0.001 --artopk.ratio 0.1 {}", network));
    const double sent = summary_.at("wire_bytes_per_rank_total");
    const nlohmann::json bounds = plan();
    const double least = bounds.at("plan").at("least").at("wire_bytes_per_rank_total"),
                 most = bounds.at("wire_bytes_per_rank_total");
    EXPECT_LE(least, sent);
    EXPECT_GE(most, sent);
    const nlohmann::json followed = plan("--decisions-from " + path("run"));
    EXPECT_FALSE(followed.at("plan").contains("least"));
    EXPECT_EQ(followed.at("wire_bytes_per_rank_by_phase"), summary_.at("wire_bytes_per_rank_by_phase"));
    EXPECT_EQ(followed.at("sent_bytes_per_rank_total"), summary_.at("sent_bytes_per_rank_total"));
  }
  expect_failure(tiny_train("x", "--method artopk --artopk.least-ratio 0.001"), 2,
                 "--artopk.least-ratio needs --artopk.mode auto");
  expect_failure(tiny_train("x", "--method artopk --artopk.mode auto --artopk.least-ratio 0.001 --artopk.ratio 0.0001"),
                 2, "--artopk.least-ratio 0.001 is above --artopk.ratio 0.0001");
  EXPECT_FALSE(std::filesystem::exists(path("x")));
}

}  // namespace
}  // namespace ab
