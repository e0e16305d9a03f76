// SPDX-License-Identifier: MIT
//
// ScaleCom, MSTopK and HiTopKComm: laws, bytes worked out by hand, kernels. method_golden_test.cpp compares whole runs
// with programs of their own, select_test.cpp holds the selection to a sort.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/sync/hitopk.h"
#include "engine/sync/mstopk.h"
#include "engine/sync/scalecom.h"
#include "tests/exchange_steps.h"
#include "tests/thread_team.h"

namespace ab {
namespace {

using test::ExchangeSteps;
using test::mean_over;
using test::norm;
using test::on_ranks;
using test::plus;

const std::vector<test::NamedShape> kSparseShapes = {{"conv", {8, 3, 3, 4}}, {"bias", {9}}};
constexpr std::int64_t kSparseElements = 8 * 36 + 9;

ExchangeSteps::Make scalecom(const ScaleComOptions& options, std::int64_t warmup = 0) {
  return [=](Replica replica, Comm& world) {
    replica.params[1]->role = ParamRole::vector;
    return std::make_unique<ScaleComStrategy>(std::move(replica), world, options,
                                              CompressionStart{.dense_steps = warmup});
  };
}
ExchangeSteps::Make mstopk(double density, std::int64_t warmup = 0) {
  return [=](Replica replica, Comm& world) {
    return std::make_unique<MsTopkStrategy>(std::move(replica), world, MsTopkOptions{.density = density},
                                            CompressionStart{.dense_steps = warmup});
  };
}
ExchangeSteps::Make hitopk(double density, int node, std::int64_t warmup = 0) {
  return [=](Replica replica, Comm& world) {
    return std::make_unique<HiTopkStrategy>(std::move(replica), world, node, HiTopkOptions{.density = density},
                                            CompressionStart{.dense_steps = warmup});
  };
}

// --- ScaleCom.

TEST(ScaleCom, TheMemoryKeepsItsShareOfWhatWasNotSent) {
  for (const double beta : {1.0, 0.3})
    on_ranks(3, [&](Comm& world) {
      ExchangeSteps steps(world, kSparseShapes, scalecom({.rate = 7, .beta = beta}));
      std::vector<double> memory(8 * 36);
      for (int step = 0; step < 7; ++step) {
        const std::vector<Tensor> gradients = steps.draw();
        steps.step(gradients);
        const std::vector<double> after = steps.saved("scalecom.conv.residual"), mean = steps.gradient(0);
        std::vector<double> sent = gradients[0].to_doubles();  // g − (m' − m) / β
        for (std::size_t i = 0; i < sent.size(); ++i) sent[i] -= (after[i] - memory[i]) / beta;
        EXPECT_LT(norm(plus(mean_over(world, sent), mean, -1)), 1e-5) << step;
        int chosen = 0;
        for (std::size_t i = 0; i < sent.size(); ++i) {
          EXPECT_TRUE(mean[i] != 0 || std::abs(sent[i]) < 1e-5) << i << ": " << sent[i];
          chosen += mean[i] != 0;
        }
        EXPECT_EQ(chosen, (8 * 36 + 6) / 7) << "one of every chunk";
        memory = after;
      }
    });
}

TEST(ScaleCom, RanksChooseInTurn) {
  constexpr int kRanks = 3;
  on_ranks(kRanks, [](Comm& world) {
    ExchangeSteps steps(world, {{"weight", {2, 4}}, {"bias", {1}}}, scalecom({.rate = 4}, 2));
    for (int step = 0; step < 8; ++step) {
      Tensor gradient = Tensor::zeros({2, 4});
      for (int row = 0; row < 2; ++row)  // rank r's largest is element r + row of its row, in every step anew
        for (int i = 0; i < 4; ++i)
          gradient.data<float>()[4 * row + i] = i == world.rank() + row ? 1e6f * (step + 1) : 1.0f;
      steps.step({gradient, Tensor::zeros({1})});
      if (step < 2) continue;
      const std::vector<double> mean = steps.gradient(0);
      const int leader = (step - 2) % kRanks;
      for (int row = 0; row < 2; ++row)
        for (int i = 0; i < 4; ++i)
          EXPECT_EQ(mean[static_cast<std::size_t>(4 * row + i)] != 0, i == leader + row) << step;
    }
  });
}

TEST(ScaleCom, TheFilterDelaysAndLosesNothing) {
  on_ranks(2, [](Comm& world) {
    ExchangeSteps steps(world, {{"weight", {5, 8}}, {"bias", {1}}}, scalecom({.rate = 8, .beta = 0.1}));
    const std::vector<Tensor> gradients = steps.draw(0.5);
    const std::vector<double> constant = mean_over(world, gradients[0].to_doubles());
    std::vector<double> sum(40);
    constexpr int kSteps = 4000;
    for (int step = 0; step < kSteps; ++step) {
      steps.step(gradients);
      sum = plus(sum, steps.gradient(0), 1.0 / kSteps);
    }
    EXPECT_LT(norm(plus(sum, constant, -1)), 0.05 * norm(constant));
  });
}

TEST(ScaleCom, RatesAreThoseOfTheLongestName) {
  const auto rate = [](const char* name, ParamRole role, const std::vector<std::string>& rates) {
    return scalecom_rate({name, Var(Tensor({2})), role}, {.rate = 50, .rates = rates});
  };
  EXPECT_EQ(rate("layer1.conv", ParamRole::weight, {}), 50);
  EXPECT_EQ(rate("layer1.conv", ParamRole::vector, {}), 0);
  EXPECT_EQ(rate("fc", ParamRole::always_sync, {}), 0);
  EXPECT_EQ(rate("fc", ParamRole::always_sync, {"fc=9"}), 9);
  EXPECT_EQ(rate("layer1.conv", ParamRole::weight, {"layer1.conv=4", "layer1=8", "layer=3"}), 4);
  for (const char* wrong : {"layer1", "layer1=", "layer1=0", "layer1=70000", "=3", "layer1=4x"})
    EXPECT_THROW(rate("layer1.conv", ParamRole::weight, {wrong}), Error) << wrong;
}

TEST(ScaleCom, SendsOneOrTwoBytesAndAValueForEachChunk) {
  on_ranks(4, [](Comm& world) {
    ExchangeSteps steps(world, {{"near", {100, 256}}, {"bias", {10}}, {"far", {100, 257}}},
                        scalecom({.rate = 256, .rates = {"far=257"}}));
    steps.step(steps.draw());
    const auto entries = world.ledger().entries();
    for (const auto& [key, entry] : entries) {
      if (key.phase != CompressedGradients::kCompressed) continue;
      if (key.collective == Collective::broadcast) {
        EXPECT_EQ(entry.payload_bytes, 100 + 200);
      } else {
        EXPECT_EQ(entry.payload_bytes, 4 * 200 + 4 * 10);
      }
      EXPECT_EQ(entry.calls, key.collective == Collective::broadcast ? 1 : 2);
    }
  });
}

TEST(ScaleCom, AModelWithoutWeightsIsExchangedInFull) {
  on_ranks(2, [](Comm& world) {
    const auto of_vectors = [](Replica replica, Comm& ranks) {
      replica.params[0]->role = ParamRole::vector;
      return std::make_unique<ScaleComStrategy>(std::move(replica), ranks, ScaleComOptions{}, CompressionStart{});
    };
    ExchangeSteps steps(world, {{"bias", {9}}}, of_vectors);
    const std::vector<Tensor> gradients = steps.draw();
    steps.step(gradients);
    EXPECT_LT(norm(plus(steps.gradient(0), mean_over(world, gradients[0].to_doubles()), -1)), 1e-6);
  });
}

// --- Selection by each rank.

TEST(MsTopk, WhatIsSentAndWhatIsLeftAreTheMeanGradient) {
  for (const int ranks : {1, 3})
    on_ranks(ranks, [&](Comm& world) {
      ExchangeSteps steps(world, kSparseShapes, mstopk(0.05));
      std::vector<std::vector<double>> left = {std::vector<double>(8 * 36), std::vector<double>(9)};
      for (int step = 0; step < 6; ++step) {
        const std::vector<Tensor> gradients = steps.draw();
        steps.step(gradients);
        std::size_t sent = 0;
        for (const std::size_t i : {0u, 1u}) {
          const std::vector<double> m = mean_over(world, plus(gradients[i].to_doubles(), left[i]));
          left[i] = steps.saved(fmt::format("mstopk.{}.residual", kSparseShapes[i].name));
          EXPECT_LT(norm(plus(plus(mean_over(world, left[i]), steps.gradient(i)), m, -1)), 1e-5 * norm(m)) << step;
          for (const double v : left[i]) sent += v == 0;
        }
        EXPECT_EQ(sent, static_cast<std::size_t>(0.05 * kSparseElements)) << "of this rank";
      }
    });
}

TEST(HiTopk, WhatIsSentAndWhatIsLeftAreTheSumsOfNodes) {
  on_ranks(6, [](Comm& world) {
    ExchangeSteps steps(world, kSparseShapes, hitopk(0.05, 2));
    constexpr std::int64_t kSlice = (kSparseElements + 1) / 2;
    // What all ranks know: a residual of the world, by element.
    const auto whole = [&](const std::vector<double>& slice) {
      std::vector<double> placed(2 * kSlice);
      std::copy(slice.begin(), slice.end(), placed.begin() + world.rank() % 2 * kSlice);
      placed.resize(kSparseElements);
      return mean_over(world, placed);
    };
    std::vector<double> left(kSparseElements);
    for (int step = 0; step < 6; ++step) {
      const std::vector<Tensor> gradients = steps.draw();
      std::vector<double> m = gradients[0].to_doubles();
      for (const double v : gradients[1].to_doubles()) m.push_back(v);
      m = plus(mean_over(world, m), left);
      steps.step(gradients);
      left = whole(steps.saved("hitopk.residual"));
      std::vector<double> mean = steps.gradient(0);
      for (const double v : steps.gradient(1)) mean.push_back(v);
      EXPECT_LT(norm(plus(plus(mean, left), m, -1)), 1e-5 * norm(m)) << step;
    }
  });
}

TEST(HiTopk, AllElementsOfASliceAreDenseTraining) {
  for (const int node : {1, 2, 4})
    on_ranks(4, [&](Comm& world) {
      ExchangeSteps steps(world, kSparseShapes, hitopk(1, node));
      for (int step = 0; step < 3; ++step) {
        const std::vector<Tensor> gradients = steps.draw();
        steps.step(gradients);
        for (const std::size_t i : {0u, 1u}) {
          const std::vector<double> mean = mean_over(world, gradients[i].to_doubles());
          EXPECT_LT(norm(plus(steps.gradient(i), mean, -1)), 1e-5) << node;
        }
        EXPECT_EQ(norm(steps.saved("hitopk.residual")), 0) << node;
      }
    });
}

TEST(HiTopk, SlicesWithoutParametersSendNothingOfTheirOwn) {
  on_ranks(6, [](Comm& world) {  // slices of two elements: those of ranks 4 and 5 are padding
    ExchangeSteps steps(world, {{"weight", {7}}}, hitopk(1, 6));
    const std::vector<Tensor> gradients = steps.draw();
    steps.step(gradients);
    EXPECT_LT(norm(plus(steps.gradient(0), mean_over(world, gradients[0].to_doubles()), -1)), 1e-6);
  });
}

TEST(SparseBytes, AreThoseOfTheSelection) {
  const std::vector<test::NamedShape> large = {{"conv", {512, 3, 3, 512}}, {"bias", {512}}};
  constexpr std::int64_t kAll = 512 * 4608 + 512;
  const std::vector<Tensor> zeros = {Tensor::zeros({512, 3, 3, 512}), Tensor::zeros({512})};
  on_ranks(4, [&](Comm& world) {
    ExchangeSteps flat(world, large, mstopk(0.001));
    flat.step(zeros);
    EXPECT_EQ(world.ledger().total_of_phase(CompressedGradients::kCompressed).wire_bytes(), 56'616);
  });
  on_ranks(
      4,
      [&](Comm& world) {
        ExchangeSteps nodes(world, large, hitopk(0.001, 2));
        nodes.step(zeros);
        const std::int64_t sent = kAll / 2 / 1000;  // of a slice
        for (const auto& [key, entry] : world.ledger().entries()) {
          if (key.phase != CompressedGradients::kCompressed) continue;
          EXPECT_EQ(entry.calls, 1);
          EXPECT_EQ(entry.payload_bytes, key.group == "across" ? 8 * sent * 2 : 4 * kAll);
          EXPECT_EQ(entry.inter_node_wire_bytes, key.group == "across" ? 8 * sent : 0);
        }
      },
      2);
}

// --- All of them.

TEST(SparseMethods, AGradientThatIsNotFiniteChangesNothingOnAnyRank) {
  const std::pair<const char*, ExchangeSteps::Make> methods[] = {
      {"scalecom", scalecom({.rate = 7, .beta = 0.5}, 1)}, {"mstopk", mstopk(0.1, 1)}, {"hitopk", hitopk(0.1, 2, 1)}};
  for (const auto& method : methods)
    for (const std::size_t where : {0u, 1u})
      for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")})
        on_ranks(4, [&](Comm& world) {
          SCOPED_TRACE(fmt::format("{}, parameter {}", method.first, where));
          ExchangeSteps steps(world, kSparseShapes, method.second);
          for (int step = 0; step < 4; ++step) steps.step(steps.draw());
          std::map<std::string, std::vector<double>> before;
          const StateDict saved = steps.saved();
          for (const auto& [key, tensor] : saved.tensors()) before[key] = tensor.to_doubles();
          EXPECT_FALSE(before.empty());
          std::vector<Tensor> gradients = steps.draw();
          if (world.rank() == 2) gradients[where].data<float>()[5] = bad;
          steps.step(gradients);
          const StateDict after = steps.saved();
          for (const auto& [key, tensor] : after.tensors()) EXPECT_EQ(tensor.to_doubles(), before[key]) << key;
          EXPECT_FALSE(std::isfinite(norm(steps.gradient(0)) + norm(steps.gradient(1))))
              << "so that the update is left out";
          steps.step(steps.draw());
          for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(std::isfinite(norm(steps.gradient(i))));
        });
}

// --- Kernels.

TEST(ChunkKernels, ATeamDoesWhatALaneDoes) {
  for (const std::int64_t rate : {1, 5, 64, 300}) {
    const ChunkedVector v{.elements = rate < 5 ? 40 : 700, .rate = rate};
    Tensor x({v.elements}), memory({v.elements});
    fill_normal(x, 0, 1, {.seed = 1, .stream = 1});
    fill_normal(memory, 0, 1, {.seed = 1, .stream = 2});
    for (std::int64_t i = 1; i < v.elements; i += 2) x.data<float>()[i] = -x.data<float>()[i - 1];  // ties
    const FiniteCheck check{Device{}};
    const Tensor offsets({v.offset_bytes()}, DType::uint8), values({v.chunks()});
    largest_of_chunks(v, x, offsets);
    take_of_chunks(v, x, offsets, check, values);
    for (std::int64_t c = 0; c < v.chunks(); ++c) {
      std::int64_t best = c * rate;
      for (std::int64_t i = best; i < std::min(v.elements, (c + 1) * rate); ++i)
        if (std::abs(x.data<float>()[i]) > std::abs(x.data<float>()[best])) best = i;
      EXPECT_EQ(values.data<float>()[c], x.data<float>()[best]) << rate << ", " << c;
    }
    const Tensor by_team({v.offset_bytes()}, DType::uint8);
    const kernels::ChunkPlace place{v.elements, v.rate, by_team.data<std::uint8_t>()};
    run_rows_in_threads(4, v.chunks(), kernels::LargestOfChunk{place, x.data<float>()});
    EXPECT_EQ(by_team.to_doubles(), offsets.to_doubles()) << rate;

    const Tensor team_x = x.clone(), team_memory = memory.clone();
    settle_chunks(v, offsets, values, 0.25, check, memory, x);
    run_rows_in_threads(4, v.chunks(),
                        kernels::SettleChunk{place, values.data<float>(), 0.25f, check.failed().data<double>(),
                                             team_memory.data<float>(), team_x.data<float>()});
    EXPECT_EQ(team_x.to_doubles(), x.to_doubles());
    EXPECT_EQ(team_memory.to_doubles(), memory.to_doubles());
  }
}

}  // namespace
}  // namespace ab
