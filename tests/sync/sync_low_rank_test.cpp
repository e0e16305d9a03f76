// SPDX-License-Identifier: MIT
//
// PowerSGD and ACP-SGD: their kernels, bytes worked out by hand, and laws of low-rank gradients with error feedback.
// method_golden_test.cpp compares whole runs with programs of their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <numeric>
#include <span>

#include "engine/kernels/elementwise.h"
#include "engine/kernels/low_rank.h"
#include "engine/sync/acpsgd.h"
#include "engine/sync/powersgd.h"
#include "tests/exchange_steps.h"
#include "tests/thread_team.h"

namespace ab {
namespace {

using test::ExchangeSteps;
using test::mean_over;
using test::norm;
using test::on_ranks;
using test::plus;

const std::vector<test::NamedShape> kLowRankShapes = {{"conv", {8, 3, 3, 4}}, {"bias", {8}}, {"linear", {10, 12}}};

ExchangeSteps::Make powersgd(double rank, std::int64_t warmup = 0, double min_rate = 0) {
  return [=](Replica replica, Comm& world) {
    return std::make_unique<PowerSgdStrategy>(std::move(replica), world,
                                              PowerSgdOptions{{.rank = rank, .min_rate = min_rate}},
                                              CompressionStart{.dense_steps = warmup});
  };
}

ExchangeSteps::Make acpsgd(double rank, std::int64_t warmup = 0, double min_rate = 0, double bucket_mb = 25) {
  return [=](Replica replica, Comm& world) {
    return std::make_unique<AcpSgdStrategy>(std::move(replica), world,
                                            AcpSgdOptions{{.rank = rank, .min_rate = min_rate}, bucket_mb},
                                            CompressionStart{.dense_steps = warmup});
  };
}

struct Case {
  const char* name;
  ExchangeSteps::Make (*make)(std::int64_t rank, std::int64_t warmup);
};

class LowRank : public testing::TestWithParam<Case> {
 protected:
  ExchangeSteps::Make make(std::int64_t rank, std::int64_t warmup = 0) const { return GetParam().make(rank, warmup); }
  std::string key(const char* param, const char* what) const {
    return fmt::format("{}.{}.{}", GetParam().name, param, what);
  }
};

INSTANTIATE_TEST_SUITE_P(Methods, LowRank,
                         testing::Values(Case{"powersgd",
                                              [](std::int64_t r, std::int64_t w) { return powersgd(r, w); }},
                                         Case{"acpsgd", [](std::int64_t r, std::int64_t w) { return acpsgd(r, w); }}),
                         [](const auto& info) { return info.param.name; });

TEST_P(LowRank, WhatIsSentAndWhatIsLeftAreTheMeanGradient) {
  for (const int ranks : {1, 3})
    on_ranks(ranks, [&](Comm& world) {
      ExchangeSteps steps(world, kLowRankShapes, make(2));
      std::vector<std::vector<double>> residuals = {std::vector<double>(8 * 36), {}, std::vector<double>(120)};
      for (int step = 0; step < 8; ++step) {
        const std::vector<Tensor> gradients = steps.draw();
        steps.step(gradients);
        for (const std::size_t i : {0u, 2u}) {
          const std::vector<double> m = mean_over(world, plus(gradients[i].to_doubles(), residuals[i]));
          residuals[i] = steps.saved(key(kLowRankShapes[i].name.c_str(), "residual"));
          const std::vector<double> sum = plus(mean_over(world, residuals[i]), steps.gradient(i));
          EXPECT_LT(norm(plus(sum, m, -1)), 2e-6 * norm(m)) << step;
          EXPECT_GT(norm(residuals[i]), 0.1) << "compresses, on a rank alone too";
        }
        const std::vector<double> bias = mean_over(world, gradients[1].to_doubles());
        EXPECT_LT(norm(plus(steps.gradient(1), bias, -1)), 1e-6) << "exchanged in full";
      }
    });
}

TEST_P(LowRank, EveryRankHoldsTheSameFactorsAndGradients) {
  on_ranks(4, [&](Comm& world) {
    ExchangeSteps steps(world, kLowRankShapes, make(3));
    const auto expect_equal = [&](const std::vector<double>& values, const std::string& what) {
      const Tensor mine = Tensor::from(values, Shape{static_cast<std::int64_t>(values.size())}), first = mine.clone();
      world.broadcast(first, 0);
      EXPECT_EQ(mine.to_doubles(), first.to_doubles()) << what;
    };
    for (int step = 0; step < 4; ++step) {
      steps.step(steps.draw());
      for (const char* factor : {"p", "q"}) expect_equal(steps.saved(key("linear", factor)), factor);
      for (std::size_t i = 0; i < 3; ++i) expect_equal(steps.gradient(i), "gradient");
    }
  });
}

TEST_P(LowRank, AGradientThatIsNotFiniteChangesNothingOnAnyRank) {
  // In a matrix, and in what is exchanged in full.
  for (const std::size_t where : {0u, 1u})
    for (int bad = 0; bad < 2; ++bad)
      on_ranks(3, [&](Comm& world) {
        ExchangeSteps steps(world, kLowRankShapes, make(2, 1));
        for (int step = 0; step < 4 + bad; ++step) steps.step(steps.draw());
        const StateDict before = steps.saved();
        std::map<std::string, std::vector<double>> values;
        for (const auto& [name, tensor] : before.tensors()) values[name] = tensor.to_doubles();
        EXPECT_EQ(values.size(), 6u);
        std::vector<Tensor> gradients = steps.draw();
        if (world.rank() == 2) gradients[where].data<float>()[3] = std::numeric_limits<float>::infinity();
        steps.step(gradients);
        const StateDict after = steps.saved();
        for (const auto& [name, tensor] : after.tensors()) EXPECT_EQ(tensor.to_doubles(), values[name]) << name;
        EXPECT_FALSE(std::isfinite(norm(steps.gradient(where)))) << "so that the update is left out";
        steps.step(steps.draw());
        for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(std::isfinite(norm(steps.gradient(i))));
      });
}

TEST_P(LowRank, AfterAFirstStepThatIsNotFiniteGradientsAreProjectionsToo) {
  on_ranks(2, [&](Comm& world) {
    ExchangeSteps steps(world, kLowRankShapes, make(2));
    std::vector<Tensor> gradients = steps.draw();
    gradients[0].data<float>()[3] = gradients[2].data<float>()[3] = std::numeric_limits<float>::infinity();
    steps.step(gradients);
    gradients = steps.draw();
    steps.step(gradients);
    for (const std::size_t i : {0u, 2u}) {
      const double whole = norm(mean_over(world, gradients[i].to_doubles()));
      EXPECT_LT(norm(steps.gradient(i)), 1.001 * whole);
      EXPECT_GT(norm(steps.gradient(i)), 0.1 * whole);
    }
  });
}

// An optimizer on a GPU makes its table anew when a gradient moves.
TEST_P(LowRank, GradientsKeepTheirPlaces) {
  on_ranks(2, [&](Comm& world) {
    ExchangeSteps steps(world, kLowRankShapes, make(2));
    std::vector<const void*> places;
    for (int step = 0; step < 4; ++step) {
      steps.step(steps.draw());
      std::vector<const void*> now;
      for (std::size_t i = 0; i < kLowRankShapes.size(); ++i) now.push_back(steps.gradient_place(i));
      EXPECT_TRUE(step == 0 || now == places) << step;
      places = now;
    }
  });
}

TEST_P(LowRank, AModelWithoutMatricesIsExchangedInFull) {
  on_ranks(2, [&](Comm& world) {
    ExchangeSteps steps(world, {{"bias", {9}}}, make(2));
    for (int step = 0; step < 3; ++step) {
      const std::vector<Tensor> gradients = steps.draw();
      steps.step(gradients);
      EXPECT_LT(norm(plus(steps.gradient(0), mean_over(world, gradients[0].to_doubles()), -1)), 1e-6);
    }
    EXPECT_TRUE(steps.saved().tensors().empty());
  });
}

TEST_P(LowRank, AGradientOfZerosStaysZeroAndComesBackToLife) {
  on_ranks(2, [&](Comm& world) {
    ExchangeSteps steps(world, {{"linear", {10, 12}}}, make(2));
    for (int step = 0; step < 3; ++step) {
      steps.step({step == 1 ? Tensor() : Tensor::zeros({10, 12})});
      EXPECT_EQ(norm(steps.gradient(0)), 0);
    }
    for (int step = 0; step < 2; ++step) steps.step(steps.draw());
    EXPECT_GT(norm(steps.gradient(0)), 1);
  });
}

/// u·vᵀ
Tensor rank_one() {
  const Tensor g(Shape{10, 12});
  for (std::int64_t i = 0; i < 120; ++i) g.data<float>()[i] = static_cast<float>((i / 12 + 1) * (i % 12 - 4)) * 0.1f;
  return g;
}

TEST(PowerSgd, AGradientOfTheSameRankIsSentWhole) {
  on_ranks(2, [](Comm& world) {
    ExchangeSteps steps(world, {{"linear", {10, 12}}}, powersgd(2));
    const double whole = norm(rank_one().to_doubles());
    for (int step = 0; step < 3; ++step) {
      steps.step({rank_one()});
      EXPECT_LT(norm(steps.saved("powersgd.linear.residual")), 1e-5 * whole) << step;
    }
  });
}

// What a rank takes off its error is its own projection; with Ĝ in its place the updates would be the same.
// P is as large as the square of a gradient unless Q has rows of length one.
TEST(PowerSgd, Float16IsNotTooShortForSmallGradients) {
  on_ranks(2, [](Comm& world) {
    const auto in_float16 = [](Replica replica, Comm& ranks) {
      return std::make_unique<PowerSgdStrategy>(std::move(replica), ranks, PowerSgdOptions{{.rank = 2, .min_rate = 0}},
                                                CompressionStart{.gradients = {.dtype = DType::float16}});
    };
    ExchangeSteps steps(world, {{"linear", {10, 12}}}, in_float16);
    Tensor small = rank_one();
    scale_in_place(small, 1e-3 / norm(small.to_doubles()));
    for (int step = 0; step < 4; ++step) steps.step({small});
    const std::vector<double> left = plus(steps.gradient(0), small.to_doubles(), -1);
    EXPECT_LT(norm(left), 0.01 * norm(small.to_doubles()));
  });
}

TEST(PowerSgd, TheOwnErrorLeadsToTheUpdatesOfTheGlobalError) {
  constexpr std::int64_t n = 10, m = 12, r = 2;
  using Matrix = std::vector<std::vector<double>>;
  const auto product = [](const Matrix& a, const Matrix& b, bool transpose_a) {
    const std::size_t rows = transpose_a ? a[0].size() : a.size(), inner = transpose_a ? a.size() : a[0].size();
    Matrix c(rows, std::vector<double>(b[0].size()));
    for (std::size_t i = 0; i < rows; ++i)
      for (std::size_t k = 0; k < inner; ++k)
        for (std::size_t j = 0; j < b[0].size(); ++j) c[i][j] += (transpose_a ? a[k][i] : a[i][k]) * b[k][j];
    return c;
  };
  on_ranks(3, [&](Comm& world) {
    ExchangeSteps steps(world, {{"linear", {n, m}}}, powersgd(r));
    Tensor drawn({r, m});
    fill_normal(drawn, 0, 1, {0, stream_of("powersgd.q.linear")});
    Matrix q(m, std::vector<double>(r)), error(n, std::vector<double>(m));
    for (std::int64_t k = 0; k < r; ++k)
      for (std::int64_t j = 0; j < m; ++j)
        q[static_cast<std::size_t>(j)][static_cast<std::size_t>(k)] = drawn.data<float>()[k * m + j];
    const auto averaged = [&](Matrix a) {
      for (std::vector<double>& row : a) row = mean_over(world, row);
      return a;
    };
    for (int step = 0; step < 20; ++step) {
      const std::vector<Tensor> gradients = steps.draw();
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < m; ++j) error[i][j] += gradients[0].data<float>()[i * m + j];  // M
      Matrix p = averaged(product(error, q, false));
      for (std::size_t k = 0; k < r; ++k) {  // Gram–Schmidt
        for (std::size_t l = 0; l < k; ++l) {
          double dot = 0;
          for (std::size_t i = 0; i < n; ++i) dot += p[i][l] * p[i][k];
          for (std::size_t i = 0; i < n; ++i) p[i][k] -= dot * p[i][l];
        }
        double squares = 0;
        for (std::size_t i = 0; i < n; ++i) squares += p[i][k] * p[i][k];
        for (std::size_t i = 0; i < n; ++i) p[i][k] /= std::sqrt(squares);
      }
      q = averaged(product(error, p, true));
      Matrix q_rows(r, std::vector<double>(m));
      for (std::size_t k = 0; k < r; ++k)
        for (std::size_t j = 0; j < m; ++j) q_rows[k][j] = q[j][k];
      const Matrix mean = product(p, q_rows, false);
      steps.step(gradients);
      const std::vector<double> ours = steps.gradient(0);
      for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < m; ++j) {
          error[i][j] -= mean[i][j];
          ASSERT_NEAR(ours[i * m + j], mean[i][j], 2e-3) << step;
        }
    }
  });
}

TEST(AcpSgd, AConstantGradientOfTheSameRankIsSentWholeInEveryOtherStep) {
  on_ranks(2, [](Comm& world) {
    ExchangeSteps steps(world, {{"linear", {10, 12}}}, acpsgd(2));
    const double whole = norm(rank_one().to_doubles());
    for (int step = 0; step < 8; ++step) {
      steps.step({rank_one()});
      const double left = norm(steps.saved("acpsgd.linear.residual"));
      EXPECT_TRUE(step % 2 == 0 || left < 1e-5 * whole) << step << ": " << left;
      EXPECT_TRUE(step > 0 || left > 0.1 * whole) << left;
    }
  });
}

TEST(AcpSgd, AsManyRowsAsAFactorIsLongLoseNothing) {
  on_ranks(2, [](Comm& world) {
    ExchangeSteps wide(world, {{"linear", {4, 12}}}, acpsgd(4)), tall(world, {{"linear", {12, 4}}}, acpsgd(4));
    for (int step = 0; step < 4; ++step) {
      wide.step(wide.draw());
      tall.step(tall.draw());
      ExchangeSteps& lossless = step % 2 == 0 ? tall : wide;  // r = m in a P turn, r = n in a Q turn
      EXPECT_LT(norm(lossless.saved("acpsgd.linear.residual")), 2e-5) << step;
    }
  });
}

// --- Bytes and calls, by hand: a weight of 512 × 4608 and 512 biases on four ranks.

const std::vector<test::NamedShape> kLarge = {{"conv", {512, 3, 3, 512}}, {"bias", {512}}};

LedgerEntry sent_in_step(ExchangeSteps& steps) {
  const LedgerEntry before = steps.world().ledger().total();
  steps.step({Tensor::zeros({512, 3, 3, 512}), Tensor::zeros({512})});
  LedgerEntry after = steps.world().ledger().total();
  after.calls -= before.calls, after.payload_bytes -= before.payload_bytes;
  after.intra_node_wire_bytes -= before.intra_node_wire_bytes;
  return after;
}

TEST(LowRankBytes, AreThoseOfTheFactorsAndTheBiases) {
  on_ranks(4, [](Comm& world) {
    ExchangeSteps power(world, kLarge, powersgd(4, 1, 2)), acp(world, kLarge, acpsgd(4, 1, 2));
    EXPECT_EQ(sent_in_step(power).wire_bytes(), 14'158'848);
    EXPECT_EQ(sent_in_step(acp).wire_bytes(), 14'158'848);
    const LedgerEntry both = sent_in_step(power), p = sent_in_step(acp), q = sent_in_step(acp);
    EXPECT_EQ(both.wire_bytes(), 125'952);
    EXPECT_EQ(both.calls, 3);
    EXPECT_EQ(p.wire_bytes(), 15'360);
    EXPECT_EQ(q.wire_bytes(), 113'664);
    EXPECT_EQ((p.wire_bytes() + q.wire_bytes()) / 2, 64'512);
    EXPECT_EQ(p.calls + q.calls, 2);
  });
}

TEST(AcpSgd, FactorsLeaveDuringBackward) {
  on_ranks(2, [](Comm& world) {
    ExchangeSteps steps(world, kLowRankShapes, acpsgd(2, 0, 0, 1e-5));  // one bucket for each parameter
    for (int step = 0; step < 2; ++step) {
      const std::int64_t before = world.ledger().total().calls;
      const std::vector<Tensor> gradients = steps.draw();
      EXPECT_EQ(steps.arrive(gradients) - before, 3) << "all under way before finish_grads()";
      steps.finish();
    }
  });
}

/// In double, twice over.
std::vector<double> gram_schmidt(std::vector<double> rows, std::int64_t count) {
  const auto length = static_cast<std::int64_t>(rows.size()) / count;
  const auto row = [&](std::int64_t k) {
    return std::span(rows).subspan(static_cast<std::size_t>(k * length), static_cast<std::size_t>(length));
  };
  for (std::int64_t k = 0; k < count; ++k) {
    for (std::int64_t l = 0; l < 2 * k; ++l) {
      const auto other = row(l % k);
      const double along = std::inner_product(other.begin(), other.end(), row(k).begin(), 0.0);
      for (std::size_t j = 0; j < other.size(); ++j) row(k)[j] -= along * other[j];
    }
    const double norm = std::sqrt(std::inner_product(row(k).begin(), row(k).end(), row(k).begin(), 0.0));
    for (double& v : row(k)) v /= norm;
  }
  return rows;
}

TEST(PowerSgd, SendsWhileBackwardComputesInItsWarmUpAlone) {
  on_ranks(2, [](Comm& world) {
    const auto in_small_buckets = [](Replica replica, Comm& comm) {
      return std::make_unique<PowerSgdStrategy>(std::move(replica), comm, PowerSgdOptions{{.rank = 2, .min_rate = 0}},
                                                CompressionStart{.dense_steps = 1, .gradients = {.bucket_bytes = 1}});
    };
    ExchangeSteps steps(world, kLowRankShapes, in_small_buckets);
    EXPECT_TRUE(steps.strategy().exchanges_in_backward());
    steps.step(steps.draw());
    EXPECT_FALSE(steps.strategy().exchanges_in_backward()) << "one vector is left";
  });
}

TEST(AcpSgd, SendsWhileBackwardComputesIfItHasSeveralBuckets) {
  on_ranks(2, [](Comm& world) {
    EXPECT_TRUE(ExchangeSteps(world, kLowRankShapes, acpsgd(2, 0, 0, 1e-5)).strategy().exchanges_in_backward());
    EXPECT_FALSE(ExchangeSteps(world, kLowRankShapes, acpsgd(2)).strategy().exchanges_in_backward());
  });
}

TEST(LowRankSizes, CompressWhatShrinksEnough) {
  EXPECT_EQ(low_rank_sizes({512}, {.rank = 4}).r, 0) << "a vector";
  EXPECT_EQ(low_rank_sizes({512, 3, 3, 512}, {.rank = 4}).r, 4);
  EXPECT_EQ(low_rank_sizes({512, 3, 3, 512}, {.rank = 4}).m, 4608);
  EXPECT_EQ(low_rank_sizes({16, 16}, {.rank = 4}).r, 0) << "2 · 4 · 32 = 256";
  EXPECT_EQ(low_rank_sizes({16, 17}, {.rank = 4}).r, 4) << "2 · 4 · 33 = 264 < 272";
  EXPECT_EQ(acp_sizes({16, 16}, {.rank = 4}).r, 4) << "one factor at a time";
  EXPECT_EQ(acp_sizes({64, 64}, {.rank = 0.5}).r, 0) << "32 · 128 / 2 is half of 64 · 64, and no less";
  EXPECT_EQ(acp_sizes({64, 64}, {.rank = 0.5, .min_rate = 1.5}).r, 32);
  EXPECT_EQ(low_rank_sizes({3, 1000}, {.rank = 4, .min_rate = 0}).r, 3);
  EXPECT_EQ(low_rank_sizes({64, 3, 3, 64}, {.rank = 4}).r, 4);
  EXPECT_EQ(low_rank_sizes({64, 3, 3, 64}, {.rank = 0.25}).r, 16) << "of 64, not of 576";
  EXPECT_EQ(low_rank_sizes({576, 64}, {.rank = 0.25}).r, 16);
  EXPECT_EQ(low_rank_sizes({3, 1000}, {.rank = 0.1}).r, 1);
  EXPECT_EQ(low_rank_sizes({64, 576}, {.rank = 0.5}).r, 0) << "2 · 32 · 640 is more than 64 · 576";
  EXPECT_EQ(low_rank_sizes({64, 64}, {.rank = 0.25}).r, 0) << "2 · 16 · 128 is as much";
  EXPECT_EQ(low_rank_sizes({64, 64}, {.rank = 0.25, .min_rate = 1.5}).r, 16);
  EXPECT_EQ(low_rank_sizes({64}, {.rank = 0.25}).r, 0);
}

/// Some of an odd number of elements, which come last.
TEST(LowRankGradients, FactorsFillOneTensorAndBeginInFours) {
  std::deque<Param> params;
  std::vector<Param*> list;
  for (const Shape& shape : {Shape{5, 7}, Shape{8, 12}, Shape{3, 5}, Shape{4, 9}}) {
    params.push_back({fmt::format("w{}", list.size()), Var(Tensor::zeros(shape), true)});
    list.push_back(&params.back());
  }
  const auto three = [](const Shape& shape) { return low_rank_sizes(shape, {.rank = 3, .min_rate = 0}); };
  const LowRankGradients gradients(list, three, 1, "low");
  using Factor = Tensor LowRankMatrix::*;
  for (const auto& [all, factor, own] :
       {std::tuple{gradients.all_p(), Factor{&LowRankMatrix::p}, Factor{&LowRankMatrix::own_p}},
        {gradients.all_q(), Factor{&LowRankMatrix::q}, Factor{&LowRankMatrix::own_q}}}) {
    all.set_zero();
    for (const LowRankMatrix& w : gradients.matrices()) {
      const Tensor part = w.*factor;
      const std::int64_t begin = part.data<float>() - all.data<float>();
      EXPECT_TRUE(begin % 4 == 0 || part.numel() % 4 != 0) << w.param->name;
      EXPECT_EQ((w.*own).shape(), part.shape());
      for (std::int64_t i = 0; i < part.numel(); ++i) part.data<float>()[i] += static_cast<float>(1 + begin);
    }
    EXPECT_EQ(std::ranges::count(all.to_doubles(), 0.0), 0) << "between factors";
    for (const LowRankMatrix& w : gradients.matrices()) {
      const Tensor part = w.*factor;
      const auto begin = static_cast<double>(part.data<float>() - all.data<float>());
      EXPECT_EQ(std::ranges::count(part.to_doubles(), 1 + begin), part.numel()) << "shared with another factor";
    }
  }
  gradients.note_own_q();
  for (const LowRankMatrix& w : gradients.matrices()) EXPECT_EQ(w.own_q.to_doubles(), w.q.to_doubles());
}

// --- Kernels.

/// On this processor, or by teams of so many threads.
void make_orthonormal(const std::vector<FactorRows>& factors, int lanes) {
  const OrthonormalRows all(factors, Device{});
  if (lanes == 0) return all.make(5, 7);
  for (int turn = 0; turn < OrthonormalRows::kTurns; ++turn) {
    run_rows_in_threads(lanes, all.count() * all.most_rows(),
                        kernels::GramOfRows{all.factors(), all.most_rows(), turn});
    run_rows_in_threads(lanes, all.count(), kernels::InvertCholesky{all.factors(), 5, factor_draw(7), turn});
    run_rows_in_threads(lanes, all.count() * 2, kernels::TurnRows{all.factors(), 2, turn});
  }
}

double farthest_from_orthonormal(const Tensor& rows) {
  const std::vector<double> v = rows.to_doubles();
  const auto r = static_cast<std::size_t>(rows.dim(0)), length = static_cast<std::size_t>(rows.dim(1));
  double farthest = 0;
  for (std::size_t k = 0; k < r; ++k)
    for (std::size_t l = 0; l <= k; ++l) {
      double dot = 0;
      for (std::size_t j = 0; j < length; ++j) dot += v[k * length + j] * v[l * length + j];
      farthest = std::max(farthest, std::abs(dot - (k == l)));
    }
  return farthest;
}

TEST(LowRankKernels, OrthonormaliseRowsAsALaneAndAsATeam) {
  constexpr std::int64_t r = 5, length = 70;
  const auto run = [&](int lanes) {
    Tensor rows({r, length});
    fill_normal(rows, 0, 1, {.seed = 3, .stream = 1});
    float* const v = rows.data<float>();
    std::copy_n(v, length, v + 2 * length);     // depends on the first
    std::fill_n(v + 4 * length, length, 0.0f);  // is zero
    for (std::int64_t j = 0; j < length; ++j) v[3 * length + j] = v[j] + 1e-3f * v[3 * length + j];  // nearly depends
    make_orthonormal({{v, length, r, 9}}, lanes);
    return rows;
  };
  const Tensor serial = run(0);
  EXPECT_LT(farthest_from_orthonormal(serial), 1e-6);
  for (const int lanes : {1, 3, 8, 64}) {
    const Tensor team = run(lanes);
    for (std::int64_t i = 0; i < r * length; ++i)
      ASSERT_NEAR(team.data<float>()[i], serial.data<float>()[i], i / length == 3 ? 2e-3 : 1e-5) << lanes << ", " << i;
  }
}

/// Factors of several sizes at once; rows that share nearly all of their length; and as many rows as columns.
TEST(LowRankKernels, OrthonormalRowsAreThoseOfGramSchmidt) {
  for (const int lanes : {0, 3}) {
    std::vector<Tensor> factors;
    std::vector<FactorRows> rows;
    for (const auto& [r, length] : {std::array<std::int64_t, 2>{1, 9}, {7, 150}, {33, 200}, {24, 24}}) {
      const Tensor factor({r, length});
      fill_normal(factor, 0, 1, {.seed = 8, .stream = rows.size()});
      for (std::int64_t k = 1; k < r; ++k) axpy(30.0, factor.slice(0, 1), factor.slice(k, k + 1));
      factors.push_back(factor);
      rows.push_back({factor.data<float>(), length, r, 1});
    }
    std::vector<std::vector<double>> expected;
    for (const Tensor& factor : factors) expected.push_back(gram_schmidt(factor.to_doubles(), factor.dim(0)));
    make_orthonormal(rows, lanes);
    for (std::size_t f = 0; f < factors.size(); ++f) {
      const std::vector<double> ours = factors[f].to_doubles();
      for (std::size_t i = 0; i < ours.size(); ++i) ASSERT_NEAR(ours[i], expected[f][i], 1e-6) << f << ", " << i;
    }
  }
}

/// Each row nearly the one before it: what is lost multiplies from row to row.
TEST(LowRankKernels, RowsOfAChainAreOrthonormalToo) {
  constexpr std::int64_t r = 5, length = 12;
  for (const float distance : {1e-2f, 1e-3f, 1e-4f, 2e-5f})
    for (const int lanes : {0, 3}) {
      const Tensor rows = Tensor::zeros({r, length});
      for (std::int64_t k = 0; k < r; ++k) {
        rows.data<float>()[k * length + k] = k == 0 ? 1 : distance;
        if (k > 0) rows.data<float>()[k * length + k - 1] = 1;
      }
      make_orthonormal({{rows.data<float>(), length, r, 1}}, lanes);
      EXPECT_LT(farthest_from_orthonormal(rows), 1e-6) << distance << ", " << lanes;
    }
}

TEST(LowRankKernels, ARowThatIsNotFiniteSpoilsNoneBeforeIt) {
  const Tensor rows({4, 20});
  for (const float bad : {NAN, INFINITY}) {
    fill_normal(rows, 0, 1, {.seed = 8, .stream = 1});
    rows.data<float>()[2 * 20 + 3] = bad;
    make_orthonormal({{rows.data<float>(), 20, 4, 1}}, 0);
    for (std::int64_t k = 0; k < 4; ++k) {
      bool finite = true;
      for (std::int64_t j = 0; j < 20; ++j) finite &= std::isfinite(rows.data<float>()[k * 20 + j]);
      EXPECT_EQ(finite, k < 2) << k;
    }
  }
}

/// Numbers of rows and columns that fill groups and vectors, and that do not; few factors, and so many that a library
/// multiplies them.
TEST(LowRankKernels, APassOnTheProcessorIsThatOfTheKernels) {
  for (const auto& [n, m, r] : {std::array<std::int64_t, 3>{8, 64, 1}, {6, 37, 5}, {9, 50, 4}, {11, 70, 9}})
    for (const bool has_failed : {false, true}) {
      SCOPED_TRACE(fmt::format("[{}, {}], r = {}, {}", n, m, r, has_failed ? "failed" : "good"));
      std::vector<Tensor> in;
      for (const Shape& shape : {Shape{n, m}, Shape{n, m}, Shape{r, m}, Shape{r, m}, Shape{r, n}}) {
        in.emplace_back(shape);
        fill_normal(in.back(), 0, 1, {.seed = 6, .stream = in.size()});
      }
      const Tensor &g = in[0], &e = in[1], &q = in[2], &own_q = in[3], &own_p = in[4];
      const Tensor failed = Tensor::from(std::vector<double>{has_failed ? NAN : 0.0}, Shape{1}, Device{});
      const auto values = [](const Tensor& p, const Tensor& work, const Tensor& rest) {
        std::vector<double> all = p.to_doubles();
        for (const Tensor& t : {work, rest}) std::ranges::copy(t.to_doubles(), std::back_inserter(all));
        return all;
      };
      const Tensor work({n, m}), p({r, n}), rest = e.clone();
      add_and_project(g, rest, q, work, p);
      split_off_projection({own_p, own_q}, {p, q}, failed, work, rest);
      const Tensor work2({n, m}), p2({r, n}), rest2 = e.clone();
      const kernels::AddAndProject project{
          g.data<float>(), e.data<float>(), q.data<float>(), work2.data<float>(), p2.data<float>(), n, m, r};
      const kernels::SplitOffProjection split{own_p.data<float>(),
                                              own_q.data<float>(),
                                              p2.data<float>(),
                                              q.data<float>(),
                                              failed.data<double>(),
                                              work2.data<float>(),
                                              rest2.data<float>(),
                                              n,
                                              m,
                                              r};
      for (std::int64_t i = 0; i < n; ++i) project(SerialTeam{}, i), split(SerialTeam{}, i);
      const std::vector<double> ours = values(p, work, rest), expected = values(p2, work2, rest2);
      for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(ours[i], expected[i], 2e-4) << i;
    }
}

TEST(LowRankKernels, APassOverAMatrixIsTheSameForALaneAndATeam) {
  constexpr std::int64_t n = 6, m = 37, r = 3;
  std::vector<Tensor> in;
  for (const Shape& shape : {Shape{n, m}, Shape{n, m}, Shape{r, m}, Shape{r, n}}) {
    in.emplace_back(shape);
    fill_normal(in.back(), 0, 1, {.seed = 4, .stream = in.size()});
  }
  const Tensor &g = in[0], &e = in[1], &q = in[2], &own_p = in[3], ok = Tensor::zeros({1}, DType::float64);
  const auto run = [&](int lanes) {
    const Tensor work({n, m}), p({r, n}), rest = e.clone();
    const kernels::AddAndProject project{
        g.data<float>(), e.data<float>(), q.data<float>(), work.data<float>(), p.data<float>(), n, m, r};
    const kernels::SplitOffProjection split{own_p.data<float>(),
                                            q.data<float>(),
                                            p.data<float>(),
                                            q.data<float>(),
                                            ok.data<double>(),
                                            work.data<float>(),
                                            rest.data<float>(),
                                            n,
                                            m,
                                            r};
    if (lanes == 0) {
      for (std::int64_t i = 0; i < n; ++i) project(SerialTeam{}, i), split(SerialTeam{}, i);
    } else {
      run_rows_in_threads(lanes, n, project);
      run_rows_in_threads(lanes, n, split);
    }
    return std::vector<double>(plus(rest.to_doubles(), work.to_doubles(), 3));
  };
  const std::vector<double> serial = run(0);
  double expected = 0;  // element [2, 5] by hand
  const auto at = [](const Tensor& t, std::int64_t i, std::int64_t j) {
    return double{t.data<float>()[i * t.dim(1) + j]};
  };
  for (std::int64_t k = 0; k < r; ++k) {
    double p = 0;
    for (std::int64_t j = 0; j < m; ++j) p += at(q, k, j) * (at(g, 2, j) + at(e, 2, j));
    expected += 3 * p * at(q, k, 5) - at(own_p, k, 2) * at(q, k, 5);
  }
  EXPECT_NEAR(serial[2 * m + 5], expected + at(g, 2, 5) + at(e, 2, 5), 1e-4);
  for (const int lanes : {1, 3, 8}) EXPECT_LT(norm(plus(run(lanes), serial, -1)), 1e-4) << lanes;
}

}  // namespace
}  // namespace ab
