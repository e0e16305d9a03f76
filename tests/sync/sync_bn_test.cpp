// SPDX-License-Identifier: MIT
//
// Synchronised batch norm: ranks that share statistics compute what one rank would on all their images.
#include "engine/sync/batch_norm_sync.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <mutex>
#include <stdexcept>

#include "apps/methods/ab.h"
#include "apps/train/build_run.h"
#include "apps/train/train_loop.h"
#include "engine/core/random.h"
#include "engine/core/threads.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/random.h"
#include "engine/ops/loss.h"
#include "tests/striped_images.h"

namespace ab {
namespace {

using namespace std::chrono_literals;
using Values = std::vector<double>;

void on_bn_ranks(int ranks, const std::function<void(Comm&)>& body) {
  run_thread_ranks(ranks, {.timeout = 20s}, [&](Comm& comm) {
    set_compute_threads(1);
    body(comm);
  });
}

Tensor normal(const Shape& shape, DType dtype, std::uint64_t stream, double mean = 0.3) {
  Tensor t(shape, dtype);
  fill_normal(t, mean, 1.0, Philox{.seed = 11, .stream = stream});
  return t;
}

void expect_near(const Values& a, const Values& b, double tolerance, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(a[i], b[i], tolerance * std::max(1.0, std::abs(b[i]))) << what << " " << i;
}

// --- The operation.

constexpr std::int64_t kChannels = 5;

/// y = relu(batch_norm(x) + residual) and all gradients for a given dy.
struct Normed {
  Tensor y, dx, dresidual, dgamma, dbeta;
  Tensor running_mean, running_var;
};
Normed norm(const Tensor& x, const Tensor& residual, const Tensor& dy, Comm* ranks, const Tensor& sums = {},
            double loss_scale = 1) {
  const DType type = x.dtype();
  const Var input(x, true), other(residual, true);
  const Var gamma(normal({kChannels}, type, 8), true), beta(normal({kChannels}, type, 9), true);
  BatchNormStats stats{Tensor::zeros({kChannels}, type), Tensor::zeros({kChannels}, type)};
  stats.sum_over_ranks = sum_over(ranks);
  const Var y = batch_norm(input, gamma, beta, stats, true, Activation::relu, other, sums);
  const Tensor scaled = dy.clone();
  scale_in_place(scaled, loss_scale);
  backward(record("probe", Tensor::zeros({1}, type), {y}, [=](const Tensor&) { return Gradients{scaled}; }), 1,
           loss_scale);
  return {y.value(), input.grad(), other.grad(), gamma.grad(), beta.grad(), stats.running_mean, stats.running_var};
}

/// Rows [begin, end) are the pixels of one rank.
struct Rows {
  std::int64_t begin, end;
};
void expect_ranks_equal_the_whole(DType type, double mean, const std::vector<Rows>& rows, double tolerance) {
  const std::int64_t pixels = rows.back().end;
  const Shape shape{pixels, 1, kChannels};
  const Tensor x = normal(shape, type, 1, mean), residual = normal(shape, type, 2), dy = normal(shape, type, 3);
  const Normed whole = norm(x, residual, dy, nullptr);
  on_bn_ranks(static_cast<int>(rows.size()), [&](Comm& comm) {
    const auto [begin, end] = rows[static_cast<std::size_t>(comm.rank())];
    const auto mine = [begin = begin, end = end](const Tensor& t) { return t.slice(begin, end); };
    const Normed part = norm(mine(x), mine(residual), mine(dy), &comm);
    expect_near(part.y.to_doubles(), mine(whole.y).to_doubles(), tolerance, "y");
    expect_near(part.dx.to_doubles(), mine(whole.dx).to_doubles(), tolerance, "dx");
    expect_near(part.dresidual.to_doubles(), mine(whole.dresidual).to_doubles(), tolerance, "dresidual");
    expect_near(part.running_mean.to_doubles(), whole.running_mean.to_doubles(), tolerance, "running mean");
    expect_near(part.running_var.to_doubles(), whole.running_var.to_doubles(), tolerance, "running variance");
    for (const auto& [own, of_whole] : {std::pair{part.dgamma, whole.dgamma}, {part.dbeta, whole.dbeta}}) {
      comm.all_reduce(own, ReduceOp::sum);  // each rank has the sums over its own pixels
      expect_near(own.to_doubles(), of_whole.to_doubles(), 20 * tolerance, "dgamma, dbeta");
    }
    EXPECT_EQ(comm.ledger().total().calls, 2 + 2);
  });
}

TEST(SyncBatchNorm, RanksNormaliseAsOneOverAllTheirPixels) {
  for (const std::vector<Rows>& rows : {std::vector<Rows>{{0, 20}, {20, 40}}, {{0, 16}, {16, 32}, {32, 48}, {48, 64}}})
    for (const auto& [type, tolerance] : {std::pair{DType::float64, 1e-12}, {DType::float32, 1e-5}})
      expect_ranks_equal_the_whole(type, 0.3, rows, tolerance);
}

TEST(SyncBatchNorm, RanksMayHaveDifferentlyManyPixelsOrOne) {
  expect_ranks_equal_the_whole(DType::float64, 0.3, {{0, 1}, {1, 30}, {30, 37}}, 1e-12);
}

TEST(SyncBatchNorm, EveryRankMayHaveALossScaleOfItsOwn) {
  const Shape shape{24, 1, kChannels};
  const Tensor x = normal(shape, DType::float32, 1), dy = normal(shape, DType::float32, 2);
  on_bn_ranks(2, [&](Comm& comm) {
    const auto mine = [&](const Tensor& t) { return t.slice(comm.rank() * 12, comm.rank() * 12 + 12); };
    const Normed plain = norm(mine(x), mine(x), mine(dy), &comm);
    const Normed scaled = norm(mine(x), mine(x), mine(dy), &comm, {}, comm.rank() == 0 ? 1024 : 256);
    for (const auto& [a, b] : {std::pair{plain.dx, scaled.dx}, {plain.dgamma, scaled.dgamma}})
      EXPECT_EQ(std::memcmp(a.raw(), b.raw(), a.bytes()), 0) << "powers of two change no bit";
  });
}

TEST(SyncBatchNorm, SurvivesALargeMean) {
  expect_ranks_equal_the_whole(DType::float32, 1000.0, {{0, 200}, {200, 400}}, 2e-3);
}

/// Σ x and Σ x² per channel, [2, C] float32, as a convolution brings them along.
Tensor sums_of_channels(const Tensor& x) {
  const Tensor sums = Tensor::zeros({2, kChannels});
  std::size_t i = 0;
  for (double v : x.to_doubles()) {
    sums.data<float>()[i % kChannels] += static_cast<float>(v);
    sums.data<float>()[kChannels + i++ % kChannels] += static_cast<float>(v * v);
  }
  return sums;
}

TEST(SyncBatchNorm, RanksAddUpTheSumsOfTheirConvolutions) {
  const Tensor x = normal({40, 1, kChannels}, DType::float32, 1), dy = normal({40, 1, kChannels}, DType::float32, 2);
  on_bn_ranks(2, [&](Comm& comm) {
    const auto mine = [&](const Tensor& t) { return t.slice(comm.rank() * 15, comm.rank() * 25 + 15); };
    const Normed own = norm(mine(x), mine(x), mine(dy), &comm);
    const Normed given = norm(mine(x), mine(x), mine(dy), &comm, sums_of_channels(mine(x)));
    expect_near(given.y.to_doubles(), own.y.to_doubles(), 1e-5, "y");
    expect_near(given.dx.to_doubles(), own.dx.to_doubles(), 1e-5, "dx");
    expect_near(given.running_var.to_doubles(), own.running_var.to_doubles(), 1e-5, "running variance");
    EXPECT_NE(std::memcmp(given.running_var.raw(), own.running_var.raw(), own.running_var.bytes()), 0);
  });
}

TEST(SyncBatchNorm, ARankAloneIsPlainBatchNormBitForBit) {
  const auto comm = make_self_comm();
  const Shape shape{33, 1, kChannels};
  const Tensor x = normal(shape, DType::float32, 1), dy = normal(shape, DType::float32, 2);
  const Normed plain = norm(x, x, dy, nullptr), alone = norm(x, x, dy, comm.get());
  for (const auto& [a, b] : {std::pair{plain.y, alone.y},
                             {plain.dx, alone.dx},
                             {plain.dgamma, alone.dgamma},
                             {plain.dbeta, alone.dbeta},
                             {plain.running_mean, alone.running_mean},
                             {plain.running_var, alone.running_var}})
    EXPECT_EQ(std::memcmp(a.raw(), b.raw(), a.bytes()), 0);
  EXPECT_EQ(comm->ledger().total().calls, 0);
}

TEST(SyncBatchNorm, EvaluationExchangesNothing) {
  on_bn_ranks(2, [](Comm& comm) {
    BatchNormStats stats{Tensor::zeros({3}), Tensor::from(std::vector<float>{1, 1, 1}, Shape{3})};
    stats.sum_over_ranks = sum_over(&comm);
    const Var one(Tensor::from(std::vector<float>{1, 1, 1}, Shape{3}));
    batch_norm(Var(normal({4, 3}, DType::float32, 1)), one, one, stats, false);
    EXPECT_EQ(comm.ledger().total().calls, 0);
  });
}

TEST(SyncBatchNorm, ARankThatFailsEndsTheOthers) {
  const auto run = [] {
    on_bn_ranks(3, [](Comm& comm) {
      if (comm.rank() == 1) throw std::runtime_error("no images left");
      const Tensor x = normal({8, kChannels}, DType::float32, 1);
      norm(x, x, x, &comm);
      ADD_FAILURE() << "rank " << comm.rank() << " went on alone";
    });
  };
  EXPECT_THROW(run(), std::runtime_error);
}

// --- Training.

TrainConfig small_run(const std::string& method, std::int64_t steps) {
  TrainConfig config;
  config.model = "resnet20";
  config.width = 0.25;
  config.method = method;
  config.steps = steps;
  config.batch_size = 4;
  config.augment = false;
  config.lr = 0.02;
  config.eval_every = 0;
  config.sync_bn = SyncBn::world;
  ab_settings(config).schedule.first_split = 2;
  ab_settings(config).schedule.cycle_steps = 4;
  ab_settings(config).schedule.full_rank_steps = 2;
  return config;
}

/// What a rank saw and holds.
struct Seen {
  Values losses;           ///< of its own images, step by step
  Values first_gradients;  ///< as the optimizer saw them
  Values parameters, statistics;
  std::map<LedgerKey, LedgerEntry> traffic;
};

/// Trains as the training loop does, on images that `images(rank, step)` draws from a stream of that number.
std::vector<Seen> train_on(const TrainConfig& config, int ranks,
                           const std::function<std::uint64_t(int, std::int64_t)>& images) {
  std::vector<Seen> seen(static_cast<std::size_t>(ranks));
  on_bn_ranks(ranks, [&](Comm& world) {
    Seen& mine = seen[static_cast<std::size_t>(world.rank())];
    const auto model = make_model(make_model_spec(config, 10, 16));
    const auto optimizer = make_optimizer(config, inventory_of(*model).params);
    const auto strategy =
        make_strategy(find_method(config.method), config, *model, world, make_schedule(config, config.steps));
    TrainState state{0, *optimizer};
    strategy->start(state);
    while (state.step < config.steps) {
      world.ledger().set_phase(strategy->phase());
      optimizer->clear_grads();
      // The images of a rank with a batch of n · b are those that n ranks with batches of b see.
      const std::int64_t parts = config.batch_size / 4;
      const Shape shape{config.batch_size, 16, 16, 3};
      const Tensor x(shape), labels(Shape{config.batch_size}, DType::int64);
      for (std::int64_t p = 0; p < parts; ++p) {
        const std::uint64_t stream = images(static_cast<int>(world.rank() * parts + p), state.step);
        fill_normal(x.slice(4 * p, 4 * p + 4), 0.1 * static_cast<double>(stream % 7), 1.0, Philox{5, stream});
        for (std::int64_t i = 0; i < 4; ++i)
          labels.data<std::int64_t>()[4 * p + i] = (static_cast<std::int64_t>(stream) + i) % 10;
      }
      const Var loss = softmax_cross_entropy(model->forward(Var(x)), labels);
      mine.losses.push_back(loss.value().item());
      backward(loss);
      strategy->finish_grads(state);
      if (state.step == 0)
        for (const Param* p : inventory_of(*model).params)
          for (const double g : p->value.grad().defined() ? p->value.grad().to_doubles() : Values{})
            mine.first_gradients.push_back(g);
      optimizer->step(config.lr);
      ++state.step;
      strategy->after_step(state);
    }
    for (const Param* p : inventory_of(*model).params)
      for (const double v : p->value.value().to_doubles()) mine.parameters.push_back(v);
    for (const Buffer& buffer : inventory_of(*model).buffers)
      for (const double v : buffer.value.to_doubles()) mine.statistics.push_back(v);
    mine.traffic = world.ledger().entries();
  });
  return seen;
}

std::uint64_t all_different(int rank, std::int64_t step) { return static_cast<std::uint64_t>(100 * step + rank); }

Values mean_losses(const std::vector<Seen>& ranks) {
  Values mean(ranks[0].losses.size(), 0.0);
  for (const Seen& rank : ranks)
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += rank.losses[i] / static_cast<double>(ranks.size());
  return mean;
}

double largest_difference(const Values& a, const Values& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

class SyncBnRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Counts, SyncBnRanks, testing::Values(2, 4));

TEST_P(SyncBnRanks, TrainLikeOneRankWithTheWholeBatch) {
  TrainConfig config = small_run("dense", 5);
  const std::vector<Seen> shared = train_on(config, GetParam(), all_different);
  config.sync_bn = SyncBn::off;
  const std::vector<Seen> apart = train_on(config, GetParam(), all_different);
  config.batch_size = 4 * GetParam();
  const Seen whole = train_on(config, 1, all_different)[0];

  expect_near(shared[0].first_gradients, whole.first_gradients, 1e-4, "gradient");
  expect_near(mean_losses(shared), whole.losses, 1e-4, "loss");
  for (const Seen& rank : shared) {
    expect_near(rank.statistics, whole.statistics, 1e-3, "running statistics");
    EXPECT_EQ(rank.statistics, shared[0].statistics);
    EXPECT_EQ(rank.parameters, shared[0].parameters);
  }
  // Ranks that keep their statistics to themselves train something else.
  EXPECT_GT(largest_difference(mean_losses(apart), whole.losses), 1e-2);
  EXPECT_GT(largest_difference(apart[0].statistics, whole.statistics), 1e-2);
}

TEST_P(SyncBnRanks, EndlessWarmupEqualsDenseBitForBit) {
  for (const SyncBn scope : {SyncBn::group, SyncBn::world}) {
    TrainConfig config = small_run("dense", 3);
    config.sync_bn = scope;
    const std::vector<Seen> dense = train_on(config, GetParam(), all_different);
    config.method = "ab";
    ab_settings(config).schedule.first_split = 1000;
    const std::vector<Seen> ab = train_on(config, GetParam(), all_different);
    EXPECT_EQ(dense[0].parameters, ab[0].parameters);
    EXPECT_EQ(dense[0].statistics, ab[0].statistics);
  }
}

// Four ranks in two groups, factors from the first step on; what ranks 2 and 3 see changes between two runs.
TEST(SyncBn, GroupsThatTrainByThemselvesDoNotInfluenceEachOther) {
  const auto others_see = [](std::uint64_t what) {
    return [what](int rank, std::int64_t step) { return all_different(rank, step) + (rank >= 2 ? what : 0); };
  };
  for (const SyncBn scope : {SyncBn::group, SyncBn::world}) {
    TrainConfig config = small_run("ab", 3);
    config.sync_bn = scope;
    ab_settings(config).schedule.first_split = 0;
    ab_settings(config).schedule.cycle_steps = 10;
    const std::vector<Seen> a = train_on(config, 4, others_see(0)), b = train_on(config, 4, others_see(5000));
    const bool apart = config.sync_bn == SyncBn::group;
    EXPECT_EQ(a[0].losses == b[0].losses, apart) << static_cast<int>(scope);
    EXPECT_EQ(a[0].statistics == b[0].statistics, apart) << static_cast<int>(scope);
    EXPECT_EQ(a[0].statistics == a[2].statistics, !apart) << static_cast<int>(scope);
    EXPECT_EQ(a[0].statistics, a[1].statistics) << static_cast<int>(scope);
    EXPECT_EQ(a[2].statistics, a[3].statistics) << static_cast<int>(scope);
  }
}

TEST(SyncBn, StatisticsTravelOverTheRanksOfThePhase) {
  TrainConfig config = small_run("ab", 6);  // two steps of warm-up, low-rank and rebound each
  config.sync_bn = SyncBn::group;
  const std::vector<Seen> ranks = train_on(config, 4, all_different);
  const auto norms =
      static_cast<std::int64_t>(inventory_of(*make_model(make_model_spec(config, 10, 16))).batch_norms.size());
  const auto on_one_node = [](int size) {
    return route_of(Collective::all_reduce, AllReduce::direct, Layout(consecutive_nodes(size, 0)));
  };
  for (const Seen& rank : ranks) {
    const auto calls = [&](const char* phase, int size) {
      return rank.traffic.at({Collective::all_reduce, BatchNormSync::kLabel, phase, on_one_node(size)}).calls;
    };
    for (const char* phase : {"warmup", "rebound"}) EXPECT_EQ(calls(phase, 4), 2 * 2 * norms);
    EXPECT_EQ(calls("low-rank", 2), 2 * 2 * norms);
    EXPECT_EQ(rank.statistics, ranks[0].statistics);  // joined by the sync, shared since
  }
}

TEST(SyncBn, BatchNormsAreLeftToThemselvesAfterTheStrategy) {
  on_bn_ranks(2, [](Comm& world) {
    const TrainConfig config = small_run("dense", 1);
    const auto model = make_model(make_model_spec(config, 10, 16));
    const std::vector<BatchNormStats*> norms = inventory_of(*model).batch_norms;
    {
      const auto strategy = make_strategy(find_method(config.method), config, *model, world, make_schedule(config, 1));
      for (const BatchNormStats* stats : norms) {
        const Tensor ranks = Tensor::from(std::vector<double>{1}, Shape{1});
        stats->sum_over_ranks(ranks);
        EXPECT_EQ(ranks.item(), 2);
      }
    }
    for (const BatchNormStats* stats : norms) EXPECT_FALSE(stats->sum_over_ranks);
  });
}

// The program's own loop, with micro-batches, phases and validations in between.
TEST(SyncBn, WholeRunsOfEveryScopeEndWithOneModel) {
  const TrainAndTest images{std::make_shared<ImageSet>(test::striped_images(40, 1)),
                            std::make_shared<ImageSet>(test::striped_images(20, 2))};
  for (const SyncBn scope : {SyncBn::off, SyncBn::group, SyncBn::world}) {
    TrainConfig config = small_run("ab", 9);
    config.sync_bn = scope;
    config.batch_size = 2;
    config.accumulate = 2;
    config.eval_every = 1;
    std::vector<Values> models(4);
    run_thread_ranks(4, {.timeout = 20s}, [&](Comm& world) {
      set_compute_threads(1);
      const TrainResult result = train(config, world, images, {});
      for (const Buffer& buffer : inventory_of(*result.model).buffers)
        for (const double v : buffer.value.to_doubles()) models[static_cast<std::size_t>(world.rank())].push_back(v);
      EXPECT_TRUE(std::isfinite(result.summary.final_val_loss));
    });
    for (const Values& model : models) EXPECT_EQ(model, models[0]) << static_cast<int>(scope);
  }
}

}  // namespace
}  // namespace ab
