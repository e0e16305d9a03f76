// SPDX-License-Identifier: MIT
//
// SparseLoCo and the kernels under it: selection in tiles, the quantiser, what travels. What it has in common with other
// methods is in strategy_laws_test.cpp, eight steps from its publication in golden/methods.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/device/device.h"
#include "engine/kernels/random.h"
#include "engine/kernels/tile_codes.h"
#include "engine/sync/local.h"
#include "engine/sync/sparseloco.h"
#include "tests/exchange_steps.h"
#include "tests/thread_team.h"

namespace ab {
namespace {

Tensor normal(const Shape& shape, const std::string& name) {
  Tensor x(shape);
  fill_normal(x, 0, 1, {.seed = 5, .stream = stream_of(name)});
  return x;
}

/// Few values, so that many magnitudes are equal.
Tensor rounded(const Shape& shape, const std::string& name) {
  const Tensor x = normal(shape, name);
  for (float& v : x.span<float>()) v = std::round(2 * v);
  return x;
}

const std::uint16_t* positions_of(const Tensor& t) {
  return reinterpret_cast<const std::uint16_t*>(t.data<std::uint8_t>());
}

struct Taken {
  Tensor positions, values;
  explicit Taken(const TileTopk& topk, Device device = {})
      : positions({2 * topk.slots()}, DType::uint8, device), values({topk.slots()}, DType::float32, device) {}
};

const Shape kOddShapes[] = {Shape{67, 131}, Shape{10, 64}, Shape{5, 3, 7, 7}, Shape{130}, Shape{3}};

TEST(TileTopk, IsWhatASortOfEveryTileGives) {
  for (const Shape& shape : kOddShapes)
    for (const std::int64_t k : {1, 7, 64, 4096}) {
      SCOPED_TRACE(fmt::format("{} of {}", k, shape.str()));
      const TileTopk topk{tile_grid(shape), k};
      const Tensor x = rounded(shape, "x");
      const Taken taken(topk), by_team(topk);
      const FiniteCheck finite{Device{}};
      largest_of_tiles(topk, x, finite, taken.positions, taken.values);
      run_rows_in_threads(4, topk.grid.tiles(),
                          kernels::LargestOfTile{topk, x.data<float>(), finite.failed().data<double>(),
                                                 const_cast<std::uint16_t*>(positions_of(by_team.positions)),
                                                 by_team.values.data<float>()});
      EXPECT_EQ(taken.positions.to_doubles(), by_team.positions.to_doubles());
      EXPECT_EQ(taken.values.to_doubles(), by_team.values.to_doubles());
      for (std::int64_t tile = 0; tile < topk.grid.tiles(); ++tile) {
        std::vector<std::int64_t> order;
        for (std::int64_t at = 0; at < topk.grid.tile_size(); ++at)
          if (topk.grid.place(tile, at) >= 0) order.push_back(at);
        const auto value = [&](std::int64_t at) { return x.data<float>()[topk.grid.place(tile, at)]; };
        std::stable_sort(order.begin(), order.end(),
                         [&](auto a, auto b) { return std::abs(value(a)) > std::abs(value(b)); });
        order.resize(std::min(order.size(), static_cast<std::size_t>(k)));
        std::sort(order.begin(), order.end());
        ASSERT_EQ(static_cast<std::int64_t>(order.size()), topk.taken(tile));
        for (std::size_t j = 0; j < order.size(); ++j) {
          const std::int64_t slot = tile * topk.slots_per_tile() + static_cast<std::int64_t>(j);
          ASSERT_EQ(positions_of(taken.positions)[slot], order[j]);
          ASSERT_EQ(taken.values.data<float>()[slot], value(order[j]));
        }
      }
    }
}

// --- The bytes of a tensor.

TileCodes codes_of(const Shape& shape, std::int64_t k, int bits) {
  TileCodes codes{.topk = {tile_grid(shape), k}, .bits = bits};
  codes.groups = codes.float_bytes();
  return codes;
}

Tensor encoded(const TileCodes& codes, const Tensor& x) {
  const Taken taken(codes.topk, x.device());
  largest_of_tiles(codes.topk, x, FiniteCheck(x.device()), taken.positions, taken.values);
  const Tensor bytes = Tensor::zeros({codes.groups + (codes.group_bytes() + 3) / 4 * 4}, DType::uint8, x.device());
  encode_tiles(codes, taken.positions, taken.values, bytes);
  return bytes;
}

std::vector<double> decoded(const TileCodes& codes, const Tensor& bytes, const Shape& shape) {
  const Tensor y = Tensor::zeros(shape, DType::float32, bytes.device());
  add_tiles(codes, bytes, 1, 1, y);
  return y.to_doubles();
}

TEST(TileCodes, EveryPlaceOfATileArrives) {
  const Shape shape{64, 64};
  for (const int parity : {0, 1}) {
    const Tensor x = normal(shape, "x");
    for (std::int64_t i = 0; i < x.numel(); ++i)
      if (i % 2 == parity) x.data<float>()[i] += 100;
    const TileCodes codes = codes_of(shape, 2048, 32);
    std::vector<double> expected = x.to_doubles();
    for (std::size_t i = 0; i < expected.size(); ++i)
      if (static_cast<int>(i % 2) != parity) expected[i] = 0;
    EXPECT_EQ(decoded(codes, encoded(codes, x), shape), expected);
  }
}

TEST(TileCodes, HaveTheBytesThatTheLayoutSays) {
  const Tensor x = Tensor::zeros({64, 64});
  // Places 0x123, 0x456, 0x789 and 0xabc; all of one magnitude, so codes 1 and 3 stand for −2 and 2.
  for (const int at : {0x123, 0x789}) x.data<float>()[at] = -2;
  for (const int at : {0x456, 0xabc}) x.data<float>()[at] = 2;
  const std::vector<double> all = encoded(codes_of(x.shape(), 4, 2), x).to_doubles();
  EXPECT_EQ(std::vector<double>(all.begin() + 16, all.begin() + 23),
            (std::vector<double>{0x23, 0x61, 0x45, 0x89, 0xc7, 0xab, 1 + 3 * 4 + 1 * 16 + 3 * 64}));
  EXPECT_EQ(codes_of({512, 4608}, 64, 2).group_bytes(), 64512);
}

TEST(TileCodes, TwoBitsKeepWhatHasTwoValuesOrOne) {
  const Shape shape{70, 3};
  const TileCodes codes = codes_of(shape, 4096, 2);
  for (const float constant : {0.0f, 0.3f}) {
    const Tensor x = Tensor::from(std::vector<float>(210, constant), shape);
    EXPECT_EQ(decoded(codes, encoded(codes, x), shape), x.to_doubles()) << constant;
  }
  const Tensor x =
      normal(shape, "signs");  // so near each other that a slot of the second tile that is empty must not count
  for (float& v : x.span<float>()) v = v < 0 ? 1.0f : 1.1f;
  EXPECT_EQ(decoded(codes, encoded(codes, x), shape), x.to_doubles());
}

TEST(TileCodes, ATeamAndAGpuDoTheSame) {
  for (const Shape& shape : kOddShapes)
    for (const int bits : {2, 32}) {
      SCOPED_TRACE(fmt::format("{}, {} bits", shape.str(), bits));
      const TileCodes codes = codes_of(shape, 9, bits);
      const Tensor x = normal(shape, "x"), bytes = encoded(codes, x), two({2 * bytes.numel()}, DType::uint8);
      two.slice(0, bytes.numel()).copy_from(bytes);
      two.slice(bytes.numel(), two.numel()).copy_from(encoded(codes, rounded(shape, "y")));
      const Tensor here = x.clone(), by_team = x.clone();
      add_tiles(codes, two, 2, -0.5, here);
      run_rows_in_threads(
          4, codes.topk.grid.tiles(),
          kernels::AddTile{codes, two.data<std::uint8_t>(), bytes.numel(), 2, -0.5f, by_team.data<float>()});
      EXPECT_EQ(here.to_doubles(), by_team.to_doubles());
      if (bits == 2) {
        const Taken taken(codes.topk);
        largest_of_tiles(codes.topk, x, FiniteCheck(Device{}), taken.positions, taken.values);
        kernels::CodeRule rule{};
        float book[4];
        run_rows_in_threads(
            3, 1, kernels::MakeCodebook{codes.topk, taken.values.data<float>(), codes.topk.slots(), &rule, book});
        for (int c = 0; c < 4; ++c)
          EXPECT_NEAR(book[c], reinterpret_cast<const float*>(bytes.data<std::uint8_t>())[c], 1e-6) << c;
      }
      if (cuda_device_count() == 0) continue;
      const Device gpu{DeviceKind::cuda, 0};
      EXPECT_EQ(encoded(codes, x.to(gpu)).to_doubles(), bytes.to_doubles());
      const Tensor there = x.to(gpu);
      add_tiles(codes, two.to(gpu), 2, -0.5, there);
      EXPECT_EQ(there.to_doubles(), here.to_doubles());
    }
}

// --- Rounds. A step at rate 1 takes the gradient off the parameters, so Δ is the sum of a round's gradients.

using test::ExchangeSteps, test::NamedShape, test::on_ranks, test::plus;

const std::vector<NamedShape> kOddModel = {
    {"conv", {5, 3, 7, 7}}, {"linear", {67, 131}}, {"head", {10, 67}}, {"bias", {10}}};

ExchangeSteps sparseloco(Comm& world, const SparseLocoOptions& options) {
  return {world, kOddModel, [&](Replica replica, Comm& comm) {
            return std::make_unique<SparseLocoStrategy>(std::move(replica), comm, options);
          }};
}

std::vector<double> flat(const std::vector<Tensor>& tensors) {
  std::vector<double> all;
  for (const Tensor& t : tensors)
    for (const double v : t.to_doubles()) all.push_back(v);
  return all;
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b, double within) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], within) << i;
}

TEST(SparseLoco, EverythingInFullIsLocalAveraging) {
  on_ranks(3, [](Comm& world) {
    ExchangeSteps own = sparseloco(world, {.inner_steps = 3, .topk = 4096, .bits = 32});
    ExchangeSteps local(world, kOddModel, [](Replica replica, Comm& comm) {
      return std::make_unique<LocalStrategy>(std::move(replica), comm, LocalOptions{.average_every = 3},
                                             LrSchedule{.total_steps = 100});
    });
    for (int step = 0; step < 7; ++step) {
      const std::vector<Tensor> gradients = own.draw();
      own.step(gradients);
      local.step(gradients);
      expect_near(own.values(), local.values(), 1e-5);
    }
    for (const double e : own.saved("sparseloco.residual")) ASSERT_EQ(e, 0);
    own.strategy().finish(own.state());
    local.strategy().finish(local.state());
    expect_near(own.values(), local.values(), 1e-5);
  });
}

// A rank alone: θ moves by what it has sent.
TEST(SparseLoco, WhatIsNotSentStays) {
  for (const int bits : {2, 32})
    on_ranks(1, [&](Comm& world) {
      ExchangeSteps steps = sparseloco(world, {.inner_steps = 1, .topk = 7, .bits = bits, .beta = 0.5});
      for (int step = 0; step < 4; ++step) {
        const std::vector<Tensor> gradients = steps.draw();
        const std::vector<double> e = steps.saved("sparseloco.residual"), before = steps.values();
        steps.step(gradients);
        const std::vector<double> sent = plus(before, steps.values(), -1);
        expect_near(plus(steps.saved("sparseloco.residual"), sent), plus(flat(gradients), e, 0.5), 3e-6);
      }
      EXPECT_EQ(world.ledger().total().wire_bytes(), 0);
    });
}

TEST(SparseLoco, EverythingIsSentInTheLongRun) {
  on_ranks(2, [](Comm& world) {
    constexpr int kRounds = 600;
    ExchangeSteps steps = sparseloco(world, {.inner_steps = 1, .topk = 400, .bits = 2, .beta = 1});
    const std::vector<Tensor> gradients = steps.draw();
    for (int step = 0; step < kRounds; ++step) steps.step(gradients);
    const std::vector<double> mean = test::mean_over(world, flat(gradients)), moved = steps.values();
    expect_near(moved, plus(std::vector<double>(moved.size(), 0), mean, -kRounds), kRounds * 0.1);
  });
}

TEST(SparseLoco, SendsTheBytesThatItsShapesSay) {
  on_ranks(3, [](Comm& world) {
    ExchangeSteps steps = sparseloco(world, {.inner_steps = 2, .topk = 64});
    for (int step = 0; step < 5; ++step) steps.step(steps.draw());
    steps.strategy().finish(steps.state());
    // Codebooks; tiles of 5×64, 5×64 and 5×19; 6 tiles, of which the smallest is 3×3; 10×64 and 10×3; 10 codes.
    const std::int64_t groups = 16 * (3 + 6 + 2);
    const std::int64_t payload = (4 * 16 + groups * 7 + 3 + 3) / 4 * 4;
    const auto outer = world.ledger().total_of_phase(SparseLocoStrategy::kOuter);
    EXPECT_EQ(outer.calls, 3);
    EXPECT_EQ(outer.wire_bytes(), 3 * 2 * payload);
  });
}

TEST(SparseLoco, ARankThatIsNotFiniteSendsZerosAndGoesOnWithTheOthers) {
  on_ranks(2, [](Comm& world) {
    ExchangeSteps steps = sparseloco(world, {.inner_steps = 1, .topk = 7, .bits = 32});
    steps.step(steps.draw());
    const std::vector<double> e = steps.saved("sparseloco.residual"), before = steps.values();
    if (world.rank() == 1) steps.spoil();
    steps.step(steps.draw());
    if (world.rank() == 1) EXPECT_EQ(steps.saved("sparseloco.residual"), e);
    else EXPECT_NE(steps.saved("sparseloco.residual"), e);
    for (const double v : steps.values()) ASSERT_TRUE(std::isfinite(v));
    EXPECT_NE(steps.values(), before);
    EXPECT_TRUE(steps.strategy().replicas_agree());
  });
}

TEST(SparseLoco, AValidationShowsTheSharedModelWithTheMeanOfTheBuffers) {
  on_ranks(2, [](Comm& world) {
    const Tensor buffer = Tensor::zeros({1});
    ExchangeSteps steps(world, kOddModel, [&](Replica replica, Comm& comm) {
      replica.buffers = {buffer};
      return std::make_unique<SparseLocoStrategy>(std::move(replica), comm, SparseLocoOptions{.inner_steps = 2});
    });
    for (int step = 0; step < 2; ++step) steps.step(steps.draw());
    const std::vector<double> shared = steps.values();
    steps.step(steps.draw());
    const std::vector<double> own = steps.values();
    *buffer.data<float>() = static_cast<float>(world.rank());
    steps.strategy().begin_evaluation(steps.state());
    EXPECT_EQ(steps.values(), shared);
    EXPECT_EQ(*buffer.data<float>(), 0.5f);
    steps.strategy().end_evaluation(steps.state());
    EXPECT_EQ(steps.values(), own);
    EXPECT_EQ(*buffer.data<float>(), static_cast<float>(world.rank()));
    steps.step(steps.draw());
    EXPECT_EQ(*buffer.data<float>(), 0.5f);
  });
}

}  // namespace
}  // namespace ab
