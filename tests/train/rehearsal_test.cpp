// SPDX-License-Identifier: MIT
//
// A rehearsal beside the run that it stands for (plan_test and strategy_laws_test compare what they send), and the device of
// shapes by itself.
#include "apps/plan/rehearsal.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <map>
#include <thread>

#include "apps/plan/plan.h"
#include "apps/plan/replay.h"
#include "apps/settings/config.h"
#include "apps/train/train_loop.h"
#include "engine/backend/backend.h"
#include "engine/core/memory.h"
#include "engine/core/tensor.h"
#include "engine/core/threads.h"
#include "engine/device/shapes/shapes.h"
#include "engine/kernels/elementwise.h"
#include "engine/ops/flops.h"
#include "tests/striped_images.h"

namespace ab {
namespace {

constexpr Device kShapes = kShapesOfCpu;

TEST(Shapes, HaveNoNumbers) {
  const Tensor t = Tensor::zeros({3}, DType::float32, kShapes);
  fill(t, 2);
  EXPECT_THROW(t.to_doubles(), Bug);
  EXPECT_THROW(t.to(Device{}), Bug);
  EXPECT_THROW(t.span<float>(), Error);
  EXPECT_EQ(t.to_doubles(5), (std::vector<double>{5, 5, 5})) << "what is assumed";
  EXPECT_EQ(HostRead(t.slice(0, 1)).item(), 0) << "finite";
}

TEST(Shapes, TakeTheMemoryThatTheyWouldTakeOnACpu) {
  const auto taken = [](Device device, std::int64_t bytes) {
    const std::int64_t before = memory(device).stats().live_bytes;
    const Tensor t({bytes}, DType::uint8, device);
    return memory(device).stats().live_bytes - before;
  };
  for (const std::int64_t bytes : {1, 64, 65, 5000, 1'000'003})
    EXPECT_EQ(taken(kShapes, bytes), taken({}, bytes)) << bytes;
}

TEST(Shapes, OfAGpuBeginWhereItsBlocksDo) {
  const Tensor odd({3}, DType::uint8, kShapesOfGpu), next({3}, DType::uint8, kShapesOfGpu);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(next.raw()) % 256, 0u);
}

TEST(Shapes, ProductsCheckTheirShapesAndCountOperations) {
  const Tensor a({2, 3}, DType::float32, kShapes), b({3, 5}, DType::float32, kShapes),
      c({2, 5}, DType::float32, kShapes);
  const std::int64_t before = shapes_flops();
  backend(kShapes).gemm({}, a, b, c);
  EXPECT_EQ(shapes_flops() - before, 2 * 2 * 3 * 5);
  EXPECT_THROW(backend(kShapes).gemm({}, a, c, b), Bug);
}

TEST(Shapes, CountAsPassesOnAnyDeviceDo) {
  for (const char* model : {"resnet20", "vit_ti_16"}) {
    TrainConfig config;
    config.model = model, config.steps = 2, config.batch_size = 4, config.train_samples = 8, config.val_samples = 4;
    const std::int64_t of_shapes = shapes_flops(), of_passes = flops_so_far();
    rehearse_rank(config, data_shape(config), 0, 1, {});
    EXPECT_GT(flops_so_far(), of_passes);
    EXPECT_EQ(flops_so_far() - of_passes, shapes_flops() - of_shapes) << model;
  }
}

TrainAndTest images_of(const TrainConfig& config) {
  const DataShape shape = data_shape(config);
  const auto images = [&](std::int64_t count, int seed) {
    ImageSet set = test::striped_images(static_cast<int>(count), seed);
    set.classes = static_cast<int>(shape.classes);
    return std::make_shared<ImageSet>(std::move(set));
  };
  return {images(shape.train, 1), images(shape.test, 2)};
}

/// The most that a run of one rank takes of the CPU's memory beside what was there.
std::int64_t peak_of_run(const TrainConfig& config) {
  set_compute_threads(1);
  const TrainAndTest images = images_of(config);
  const auto world = make_self_comm();
  memory({}).restart_peak();
  const std::int64_t before = memory({}).stats().live_bytes;
  train(config, *world, images, {});
  return memory({}).stats().peak_bytes - before;
}

void expect_equal_peaks(const TrainConfig& config) {
  SCOPED_TRACE(config.model + " " + config.method);
  double run = 0;
  std::thread([&] {
    run = static_cast<double>(peak_of_run(config));
  }).join();               // which has no scratch of convolutions yet
  set_compute_threads(1);  // as the run had
  const auto rehearsed = static_cast<double>(rehearse_rank(config, data_shape(config), 0, 1, {}).peak_bytes);
  EXPECT_NEAR(rehearsed / run, 1, 0.03) << rehearsed << " and " << run;
}

TrainConfig small_run(const std::string& model, double width, const std::string& method, const char* own) {
  TrainConfig config = resolve_config_text({{"method", method}}, own, "");
  config.model = model, config.width = width, config.dataset = "synthetic";
  config.epochs = 0, config.steps = 6;
  config.batch_size = 16;
  config.train_samples = 32, config.val_samples = 8;
  if (model.starts_with("vit")) config.image_size = 96;
  return config;
}

TEST(Rehearsal, TakesTheMemoryOfTheRun) {
#ifdef AB_SANITIZED
  GTEST_SKIP() << "as much in any build";
#endif
  for (const auto& [model, width] : {std::pair{"resnet20", 1.0}, {"vgg16_bn_cifar", 0.25}, {"vit_ti_16", 1.0}})
    expect_equal_peaks(
        small_run(model, width, "late-cut", "[late-cut]\nat = [0.5]\nrank_policy = \"ratio\"\nkeep = [0.25]\n"));
  expect_equal_peaks(small_run("resnet20", 1, "dense", ""));
  expect_equal_peaks(small_run("resnet20", 1, "powersgd", "dense_steps = 2\n"));
}

TEST(Rehearsal, TellsWhoseMemoryItIs) {
  TrainConfig config = small_run("resnet20", 0.25, "dense", "");
  config.optimizer = "adamw", config.ema_decay = 0.9;
  const RehearsedRank rank = rehearse_rank(config, data_shape(config), 0, 1, {});
  const auto last =
      std::find_if(rank.parts.rbegin(), rank.parts.rend(), [](const auto& part) { return part.micro_batches > 0; });
  ASSERT_NE(last, rank.parts.rend());
  const MemoryUse& use = last->memory;
  EXPECT_GT(use.buffers, 0);
  EXPECT_EQ(use.gradients, use.weights);
  EXPECT_EQ(use.optimizer, 2 * use.weights);
  EXPECT_EQ(use.average, use.weights + use.buffers);
}

TEST(Rehearsal, TakesAStepOfEachKindAlone) {
  TrainConfig config = small_run("resnet20", 0.25, "local", "[local]\naverage_every = 4\n");
  config.steps = 100'000, config.train_samples = 64;
  const RehearsedRank rank = rehearse_rank(config, data_shape(config), 0, 4, {});
  std::int64_t steps = 0, taken = 0;
  for (const RehearsedPart& part : rank.parts)
    if (part.micro_batches > 0) steps += part.times, ++taken;
  EXPECT_EQ(steps, 100'000);
  EXPECT_LE(taken, 8);
  EXPECT_EQ(rank.times().at("average"), 25'000);
}

TEST(Rehearsal, StepsThatTakeTurnsAreLeftOutInAnyNumber) {
  for (const int steps : {40, 60, 90, 91}) {
    TrainConfig config =
        small_run("mlp", 0.1, "late-cut",
                  "dense_steps = 3\n[late-cut]\nfull_rank_method = \"acpsgd\"\nlow_rank_method = \"acpsgd\"\n"
                  "rank_policy = \"ratio\"\n[acpsgd]\nrank = 2\n");
    config.batch_size = 16, config.steps = steps;
    EXPECT_EQ(summary_of(rehearse(config, data_shape(config), 2, {})).steps, steps);
  }
}

TEST(Rehearsal, OfALongRunTakesFewSteps) {
  for (const char* method : {"dense", "ab"}) {
    TrainConfig config = resolve_config_text({{"method", method}}, "", "");
    config.model = "resnet50", config.dataset = "imagenet", config.image_size = 224;
    config.epochs = 20, config.batch_size = 32;
    const RehearsedRun run = rehearse(config, data_shape(config), 64, {});
    std::int64_t steps = 0, taken = 0;
    for (const RehearsedPart& part : run.classes[0].rank.parts)
      if (part.micro_batches > 0) steps += part.times, ++taken;
    EXPECT_EQ(steps, summary_of(run).steps);
    EXPECT_LT(taken, steps / 40);
  }
}

TEST(Rehearsal, TakesAStepOfEverySizeOfImages) {
  TrainConfig config = small_run("resnet20", 0.25, "dense", "");
  config.dataset = "imagenet", config.image_size = 32, config.image_sizes = {16, 1, 24, 2};
  config.steps = 0, config.epochs = 7, config.train_samples = 160;  // ten steps each
  const RehearsedRank rank = rehearse_rank(config, data_shape(config), 0, 1, {});
  std::map<std::int64_t, std::int64_t> steps, flops;
  for (const RehearsedPart& part : rank.parts)
    if (part.micro_batches > 0) steps[part.image_side] += part.times, flops[part.image_side] = part.flops;
  EXPECT_EQ(steps, (std::map<std::int64_t, std::int64_t>{{16, 10}, {24, 20}, {32, 40}}));
  EXPECT_NEAR(static_cast<double>(flops[16]) / static_cast<double>(flops[32]), 0.25, 0.01);
  config.image_sizes.clear();
  EXPECT_EQ(rank.peak_bytes, rehearse_rank(config, data_shape(config), 0, 1, {}).peak_bytes) << "of the largest";
  config.image_size = 16, config.image_sizes = {32, 1};
  EXPECT_EQ(rank.peak_bytes, rehearse_rank(config, data_shape(config), 0, 1, {}).peak_bytes) << "whenever it comes";
}

TEST(Rehearsal, RanksThatBehaveAlikeAreRehearsedOnce) {
  TrainConfig config = small_run("mlp", 0.1, "ab", "[ab]\nfirst_split = 2\ncycle_steps = 4\nfull_rank_steps = 2\n");
  config.dataset = "imagenet", config.train_samples = 100'000, config.ranks_per_node = 4;
  const RehearsedRun run = rehearse(config, data_shape(config), 4096, {});
  EXPECT_EQ(run.class_of_rank.size(), 4096u);
  EXPECT_LE(run.classes.size(), 8u);
}

TEST(Rehearsal, BoundsOfALateCutHoldForWhateverIsCut) {
  int compared = 0;
  for (const char* method : {"dense", "powersgd", "local", "hitopk", "scalecom", "acpsgd"})
    for (const int steps : {5, 40, 250})
      for (const char* wire : {"fp32", "bf16"}) {
        TrainConfig config = resolve_config_text(
            {{"method", "late-cut"}},
            fmt::format("comm_dtype = \"{}\"\n[late-cut]\nfull_rank_method = \"{}\"\nlow_rank_method = \"{}\"\n", wire,
                        method, method),
            "");
        config.model = "mlp", config.width = 0.1, config.dataset = "synthetic", config.batch_size = 8;
        config.epochs = 0, config.steps = steps, config.train_samples = 320, config.val_samples = 8;
        const RunPlan bounds = plan_run(config, {.world_size = 2});
        ASSERT_TRUE(bounds.least);
        for (const double ratio : {0.01, 0.1, 0.3, 0.49, 0.5, 0.7, 1.0}) {
          SCOPED_TRACE(fmt::format("{} {} steps {} ratio {}", method, steps, wire, ratio));
          const RunPlan one = plan_run(config, {.world_size = 2, .ratio = ratio});
          EXPECT_LE(one.summary.wire_bytes_per_rank_total, bounds.summary.wire_bytes_per_rank_total);
          EXPECT_GE(one.summary.wire_bytes_per_rank_total, bounds.least->wire);
          ++compared;
        }
      }
  EXPECT_EQ(compared, 6 * 3 * 2 * 7);
}

/// Steps that send three buckets between two nodes of one rank each, at 1 kB/ms: the first when a quarter of backward has
/// been computed, the second after half of it, the last at its end. Then what is waited for before them.
struct StepsOfBuckets {
  std::vector<std::int64_t> bytes{1000, 4000, 1000};
  double latency = 0, backward = 0;  ///< ms
  AllReduce all_reduce = AllReduce::direct;
  std::vector<std::int64_t> after_backward{};  ///< bytes
  std::vector<std::int64_t> image_sides{0};
  std::int64_t times = 10;  ///< steps of each size

  double exposed_milliseconds() const {
    const Ledger ledger(consecutive_nodes(2, 1), {.all_reduce = all_reduce});
    RehearsedPart part{.phase = "full", .micro_batches = 1, .times = times, .ledger = ledger, .flops = 12};
    part.ledger.set_phase("full");
    std::vector<CommEvent> waits;
    const auto exchange = [&](std::int64_t flops, std::int64_t size) {
      const Layout both(std::vector<int>{0, 1});
      CommEvent event{.flops = flops,
                      .request = std::ssize(part.events),
                      .what = Collective::all_reduce,
                      .group = "world",
                      .phase = "full",
                      .route = ledger.route(Collective::all_reduce, both, size),
                      .bytes = size};
      part.ledger.count(event.what, event.group, both, size);
      part.events.push_back(event);
      event.starts = false, event.flops = 12;
      return event;
    };
    const std::int64_t full[] = {4 + 2, 4 + 4, 4 + 8};  // of 12, a third of which are forward
    for (std::size_t i = 0; i < 3; ++i) waits.push_back(exchange(full[i], bytes[i]));
    for (const std::int64_t size : after_backward) {
      const CommEvent wait = exchange(12, size);
      part.events.push_back(wait);
    }
    part.events.insert(part.events.end(), waits.begin(), waits.end());
    RehearsedRank rank{.ledger = ledger};
    for (const std::int64_t side : image_sides) {
      part.image_side = side;
      rank.ledger.merge(part.ledger, times);
      rank.order.emplace_back(rank.parts.size(), times);
      rank.parts.push_back(part);
    }
    RehearsedRun run{.classes = {{.count = 2, .rank = std::move(rank)}}, .class_of_rank = {0, 0}};
    const LinkModel links{.inter_node = {latency / 1000, 1e6}, .intra_node = {0, 1e12}};
    return 1000 * replay(run, links, 1.5e-3 * backward).at("full").exposed() / static_cast<double>(times);
  }
};

TEST(Replay, ABucketLeavesOnceItIsFullAndTheOneBeforeIsSent) {
  const auto exposed = [](double backward) { return StepsOfBuckets{.backward = backward}.exposed_milliseconds(); };
  EXPECT_NEAR(exposed(0), 6, 1e-12) << "nothing is known";
  EXPECT_NEAR(exposed(4), 3, 1e-9) << "full after 1, 2 and 4 ms, sent after 2, 6 and 7";
  EXPECT_NEAR(exposed(8), 1, 1e-9) << "full after 2, 4 and 8 ms, sent after 3, 8 and 9";
  EXPECT_NEAR(exposed(1e6), 1, 1e-3) << "the last bucket leaves when backward is done";
}

TEST(Replay, StepsThatComeOftenWaitAsOftenAsTheyCome) {
  EXPECT_NEAR((StepsOfBuckets{.backward = 4, .times = 1000}).exposed_milliseconds(), 3, 1e-9);
}

TEST(Replay, StepsTakeTimeInProportionToThePixelsOfTheirImages) {
  const auto alone = [](double backward) { return StepsOfBuckets{.backward = backward}.exposed_milliseconds(); };
  const double both = StepsOfBuckets{.backward = 5, .image_sides = {1, 3}}.exposed_milliseconds();
  EXPECT_NEAR(both, alone(1) + alone(9), 1e-9) << "1 and 9 of 5 on average";
  EXPECT_GT(alone(1), alone(9));
}

TEST(Replay, LatenciesPassSideBySideExceptALibrarys) {
  StepsOfBuckets steps{.latency = 5};
  EXPECT_NEAR(steps.exposed_milliseconds(), 6 + 3 * 10, 1e-12) << "nothing is known";
  steps.backward = 4;
  EXPECT_NEAR(steps.exposed_milliseconds(), 3 + 10, 1e-9) << "there 10 ms after they are sent";
  steps.all_reduce = AllReduce::library;
  EXPECT_NEAR(steps.exposed_milliseconds(), 37 - 4, 1e-9) << "there after 12, 26 and 37 ms";
}

TEST(Replay, WhatIsWaitedForFirstIsSentBehindTheBuckets) {
  StepsOfBuckets steps{.latency = 5, .backward = 4};
  steps.after_backward = {2000};
  EXPECT_NEAR(steps.exposed_milliseconds(), 3 + 2 + 10, 1e-9) << "sent after 7 and 9 ms, there after 19";
}

TEST(Replay, TheQuestionWhetherToStopTravelsWhileFourStepsAreComputed) {
  TrainConfig config;
  config.model = "mlp", config.dataset = "cifar10", config.steps = 100;
  config.ranks = 2, config.ranks_per_node = 1, config.network = "latency=1ms,bandwidth=1000Gbps";
  const auto exposed = [&](double step_milliseconds) {
    return plan_run(config, {.step_milliseconds = step_milliseconds}).time.at("control").exposed();
  };
  EXPECT_NEAR(exposed(0), 100 * 2e-3, 1e-4) << "two rounds of 1 ms";
  EXPECT_LT(exposed(0.001), 100 * 2e-3);
  EXPECT_NEAR(exposed(10), 0, 1e-12);
}

TEST(Replay, InAValidationTheQuestionIsWaitedForAfterEveryBatch) {
  TrainConfig config;
  config.model = "mlp", config.dataset = "cifar10", config.steps = 400, config.eval_every = 1;
  config.ranks = 2, config.ranks_per_node = 1, config.network = "latency=1ms,bandwidth=1000Gbps";
  EXPECT_GT(plan_run(config, {.step_milliseconds = 10}).time.at("control").exposed(), 10 * 2e-3);
}

TEST(Replay, GroupsThatExchangeAtOnceShareACard) {
  TrainConfig config = resolve_config_text({{"method", "hitopk"}}, "dense_steps = 0\n", "");
  config.model = "mlp", config.width = 1.0 / 32, config.dataset = "synthetic", config.ranks_per_node = 2;
  config.epochs = 0, config.steps = 10, config.eval_every = 0;
  const RehearsedRun run = rehearse(config, data_shape(config), 4, {});
  const LinkModel links{.inter_node = {0, 1e3}, .intra_node = {0, 1e30}};
  const double of_a_rank = run.classes[0].rank.ledger.total_of_phase("compressed").inter_node_sent_bytes;
  EXPECT_GT(of_a_rank, 0);
  EXPECT_NEAR(replay(run, links, 0).at("compressed").communication, 2 * of_a_rank / 1e3, 1e-9)
      << "ranks 0 and 1 send through one card";
}

}  // namespace
}  // namespace ab
