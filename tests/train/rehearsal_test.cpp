// SPDX-License-Identifier: MIT
//
// A rehearsal beside the run that it stands for (plan_test and strategy_laws_test compare what they send), and the device of
// shapes by itself.
#include "apps/plan/rehearsal.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "apps/config/config.h"
#include "apps/plan/plan.h"
#include "apps/train/train_loop.h"
#include "engine/backend/backend.h"
#include "engine/core/host_read.h"
#include "engine/core/memory.h"
#include "engine/core/threads.h"
#include "engine/device/shapes/flops.h"
#include "engine/kernels/elementwise.h"
#include "tests/method_steps.h"
#include "tests/striped_images.h"

namespace ab {
namespace {

constexpr Device kShapes{DeviceKind::shapes, 0};

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

TEST(Shapes, ProductsCheckTheirShapesAndCountOperations) {
  const Tensor a({2, 3}, DType::float32, kShapes), b({3, 5}, DType::float32, kShapes),
      c({2, 5}, DType::float32, kShapes);
  const std::int64_t before = shapes_flops();
  backend(kShapes).gemm({}, a, b, c);
  EXPECT_EQ(shapes_flops() - before, 2 * 2 * 3 * 5);
  EXPECT_THROW(backend(kShapes).gemm({}, a, c, b), Bug);
}

TrainAndTest images_of(const TrainConfig& config) {
  const DataShape shape = data_shape(config);
  const auto images = [&](std::int64_t count, int seed) {
    ImageSet set = testing::striped_images(static_cast<int>(count), seed);
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
  peak_of_run(config);  // makes the scratch that convolutions keep on their thread, which a rehearsal leaves out
  const auto run = static_cast<double>(peak_of_run(config));
  const auto rehearsed = static_cast<double>(rehearse_rank(config, data_shape(config), 0, 1, {}).peak_bytes);
  EXPECT_NEAR(rehearsed / run, 1, 0.03) << rehearsed << " and " << run;
}

TrainConfig small_run(const std::string& model, double width, const std::string& method, const char* own) {
  TrainConfig config = resolve_config_text({{"method", method}}, own, "");
  config.model = model, config.width = width, config.dataset = "synthetic";
  config.epochs = 0, config.steps = 6;
  config.batch_size = 8;
  config.train_samples = 16, config.val_samples = 8;
  return config;
}

TEST(Rehearsal, TakesTheMemoryOfTheRun) {
  for (const auto& [model, width] : {std::pair{"resnet20", 1.0}, {"vgg16_bn_cifar", 0.25}, {"vit_ti_16", 1.0}}) {
    expect_equal_peaks(small_run(model, width, "dense", ""));
    expect_equal_peaks(small_run(model, width, "ab", "[ab]\ncut_at = [0.5]\nrank_policy = \"ratio\"\nratio = 0.25\n"));
    expect_equal_peaks(small_run(model, width, "powersgd", "[powersgd]\nwarmup_steps = 2\n"));
  }
}

TEST(Rehearsal, TakesAStepOfEachKindAlone) {
  TrainConfig config = small_run("resnet20", 0.25, "local", "[local]\naverage_every = 4\n");
  config.steps = 100'000, config.train_samples = 64;
  const RehearsedRank rank = rehearse_rank(config, data_shape(config), 0, 4, {});
  std::int64_t steps = 0, taken = 0;
  for (const RehearsedPart& part : rank.parts)
    if (part.is_step) steps += part.times, ++taken;
  EXPECT_EQ(steps, 100'000);
  EXPECT_LE(taken, 8);
}

TEST(Rehearsal, AgreesWithThePlanOfEveryMethodOnLargerWorlds) {
  int compared = 0;
  for (const testing::Variant& variant : testing::all_variants())
    for (const int ranks : {6, 7, 8, 9, 64})
      for (const int per_node : {0, 4}) {
        SCOPED_TRACE(fmt::format("{}: {} ranks, {} on a node", variant.name(), ranks, per_node));
        TrainConfig config = testing::small_run(*variant.method, variant.laws->small, 1);
        config.dataset = "synthetic", config.train_samples = 700, config.val_samples = 70;
        config.ranks_per_node = per_node;
        RunPlan plan;
        try {
          plan = plan_run(config, {.world_size = ranks});
        } catch (const Error&) {  // nodes that such a world does not fill
          continue;
        }
        const Summary rehearsed = summary_of(rehearse(config, data_shape(config), ranks, {}));
        EXPECT_EQ(rehearsed.wire_bytes_per_rank_by_phase, plan.summary.wire_bytes_per_rank_by_phase);
        EXPECT_EQ(rehearsed.wire_bytes_by_rank, plan.summary.wire_bytes_by_rank);
        EXPECT_EQ(rehearsed.inter_node_bytes_per_rank_total, plan.summary.inter_node_bytes_per_rank_total);
        EXPECT_EQ(rehearsed.sent_bytes_per_rank_total, plan.summary.sent_bytes_per_rank_total);
        EXPECT_EQ(rehearsed.steps_by_phase, plan.summary.steps_by_phase);
        ++compared;
        EXPECT_EQ(rehearsed.per_layer, plan.summary.per_layer);
      }
  EXPECT_GT(compared, 100);
}

TEST(Rehearsal, OfALongRunTakesFewSteps) {
  for (const char* own : {"", "[ab]\ntrain = \"groups\"\nrank_policy = \"ratio\"\nratio = 0.25\n"}) {
    TrainConfig config = resolve_config_text({{"method", *own ? "ab" : "dense"}}, own, "");
    config.model = "resnet50", config.dataset = "imagenet", config.image_size = 224;
    config.epochs = 20, config.batch_size = 32;
    const RehearsedRun run = rehearse(config, data_shape(config), 64, {});
    std::int64_t steps = 0, taken = 0;
    for (const RehearsedPart& part : run.classes[0].rank.parts)
      if (part.is_step) steps += part.times, ++taken;
    EXPECT_EQ(steps, summary_of(run).steps);
    EXPECT_LT(taken, steps / 40);
  }
}

}  // namespace
}  // namespace ab
