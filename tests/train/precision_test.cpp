// SPDX-License-Identifier: MIT
//
// Training in tf32, bf16 and fp16: it follows float32, computes in the shorter type, and keeps in float32 what has
// to be.
#include <gtest/gtest.h>

#include <mutex>

#include "ablowrank/groups/ab_strategy.h"
#include "apps/methods/ab.h"
#include "apps/train/train_loop.h"
#include "engine/core/precision.h"
#include "engine/core/threads.h"
#include "engine/kernels/elementwise.h"
#include "engine/ops/loss.h"
#include "layers/models/models.h"
#include "layers/weight.h"
#include "tests/striped_images.h"
#include "tests/tensor_values.h"

namespace ab {
namespace {

struct Case {
  const char* model;
  double width;
  const char* method = "dense";
  Execution execution = Execution::automatic;
  Rest rest = Rest::drop;

  friend void PrintTo(const Case& c, std::ostream* out) {
    *out << c.model << " " << c.method << " " << static_cast<int>(c.execution) << " " << static_cast<int>(c.rest);
  }
};

TrainConfig config_of(const Case& c) {
  TrainConfig config;
  config.model = c.model;
  config.width = c.width;
  config.method = c.method;
  config.batch_size = 32;  // norms over less magnify what rounding does
  config.steps = 6;
  config.lr = 0.02;
  config.max_grad_norm = 1.0;
  config.eval_every = 0;
  config.log_every = 1;
  ab_settings(config).schedule.first_split = 2;
  ab_settings(config).schedule.cycle_steps = 4;
  ab_settings(config).schedule.full_rank_steps = 2;
  ab_settings(config).final_model = FinalModel::dense;
  config.execution = c.execution;
  ab_settings(config).rest = c.rest;
  return config;
}

struct PrecisionOutcome {
  std::vector<double> losses;               ///< of all steps, then of the validation
  std::vector<std::vector<double>> models;  ///< of every rank
};

PrecisionOutcome run_in_precision(const TrainConfig& config, int ranks = 1) {
  PrecisionOutcome outcome;
  outcome.models.resize(static_cast<std::size_t>(ranks));
  TrainListener listener;
  listener.on_step = [&](const StepMetrics& m, std::int64_t) { outcome.losses.push_back(m.loss); };
  std::mutex mutex;
  run_thread_ranks(ranks, {.ranks_per_node = 2}, [&](Comm& world) {
    set_compute_threads(1);
    const TrainResult result = train(config, world, test::striped_sets(192, 40), listener);
    const std::lock_guard lock(mutex);
    for (Layer* model : {result.model.get(), result.average.get()})
      if (model)
        for (const Param* p : inventory_of(*model).params)
          for (const double v : p->value.value().to_doubles())
            outcome.models[static_cast<std::size_t>(world.rank())].push_back(v);
    if (world.rank() == 0) outcome.losses.push_back(result.summary.final_val_loss);
  });
  return outcome;
}

class MixedPrecision : public testing::TestWithParam<Case> {};

TEST_P(MixedPrecision, FollowsFloat32) {
  TrainConfig config = config_of(GetParam());
  const int ranks = config.method == "ab" ? 2 : 1;
  const PrecisionOutcome wide = run_in_precision(config, ranks);
  for (const auto& [precision, tolerance] : {std::pair{"bf16", 0.01}, {"fp16", 0.005}}) {
    SCOPED_TRACE(precision);
    config.precision = precision;
    const PrecisionOutcome narrow = run_in_precision(config, ranks);
    ASSERT_EQ(narrow.losses.size(), wide.losses.size());
    for (std::size_t i = 0; i < wide.losses.size(); ++i)
      EXPECT_NEAR(narrow.losses[i], wide.losses[i], tolerance * wide.losses[i]) << "loss " << i;
    EXPECT_NE(narrow.losses, wide.losses);
  }
  config.precision = "tf32";
  EXPECT_EQ(run_in_precision(config, ranks).losses, wide.losses);  // on a CPU
}

INSTANTIATE_TEST_SUITE_P(Models, MixedPrecision,
                         testing::Values(Case{"vgg11_bn_cifar", 0.125}, Case{"resnet20", 0.25}, Case{"vit_ti_16", 0.34},
                                         Case{"vgg11_bn_cifar", 0.125, "ab", Execution::factors},
                                         Case{"vgg11_bn_cifar", 0.125, "ab", Execution::form_w},
                                         Case{"resnet20", 0.25, "ab", Execution::automatic, Rest::keep},
                                         Case{"vit_ti_16", 0.34, "ab", Execution::factors}));

// Every layer that would fall back to float32 would make the logits float32.
TEST(Activations, AreOfTheTypeOfTheImagesAndGradientsFloat32) {
  for (const char* name : {"vgg11_bn_cifar", "resnet20", "vit_ti_16", "mlp"})
    for (const Precision precision : {Precision::bf16, Precision::fp16}) {
      SCOPED_TRACE(name);
      const auto model = make_model({.name = name, .width = name == std::string("vit_ti_16") ? 0.34 : 0.25});
      const Tensor images = cast(normal_values({4, 32, 32, 3}, 1), activation_type(precision));
      const Var logits = model->forward(Var(images));
      EXPECT_EQ(logits.value().dtype(), activation_type(precision));
      const Var loss = softmax_cross_entropy(logits, Tensor::from(std::vector<std::int64_t>{1, 2, 3, 4}, {4}));
      EXPECT_EQ(loss.value().dtype(), DType::float32);
      backward(loss);
      for (const Param* p : inventory_of(*model).params) {
        EXPECT_EQ(p->value.value().dtype(), DType::float32) << p->name;
        EXPECT_EQ(p->value.grad().dtype(), DType::float32) << p->name;
      }
    }
}

TEST(AbInSixteenBits, KeepsReplicasEqualInShortTypes) {
  for (const char* precision : {"bf16", "fp16"}) {
    SCOPED_TRACE(precision);
    TrainConfig config = config_of({"vgg11_bn_cifar", 0.125, "ab"});
    config.precision = precision;
    config.optimizer = "adamw";
    config.lr = 1e-3;
    config.ema_decay = 0.8;
    config.sync_bn = SyncBn::group;
    ab_settings(config).group_size = 2;
    config.batch_size = 2;
    const PrecisionOutcome outcome = run_in_precision(config, 4);
    for (const auto& model : outcome.models) EXPECT_TRUE(model == outcome.models[0]);
  }
}

/// The loss, except that its gradient is infinite.
Var overflowing(const Var& loss) {
  return record("overflow", loss.value(), {loss}, [](const Tensor& dy) {
    return Gradients{Tensor::scalar(std::numeric_limits<double>::infinity()).view(dy.shape())};
  });
}

// Rank 0 overflows among factors, and then at full rank: its group skips, then all ranks do.
TEST(AbInSixteenBits, GroupsMaySkipAnUpdateOfTheirOwn) {
  run_thread_ranks(4, {.ranks_per_node = 2}, [](Comm& world) {
    set_compute_threads(1);
    const auto model = make_model({.name = "mlp", .width = 0.1});
    const auto optimizer = make_adamw(inventory_of(*model).params, {});
    optimizer->set_skip_overflow(true);
    AbOptions options;
    options.schedule = {.first_split = 2, .cycle_steps = 6, .full_rank_steps = 3};
    options.group_size = 2;
    AbStrategy strategy(*model, world, options, LrSchedule{.peak = 1e-3});
    TrainState state{0, *optimizer};
    strategy.start(state);
    std::vector<std::string> phases;
    std::vector<bool> skipped;
    for (; state.step < 9; strategy.after_step(state)) {
      phases.push_back(strategy.phase());
      optimizer->clear_grads();
      const Var images(normal_values({4, 32, 32, 3}, static_cast<std::uint64_t>(10 * state.step + world.rank())));
      const Var loss =
          softmax_cross_entropy(model->forward(images), Tensor::from(std::vector<std::int64_t>{1, 2, 3, 4}, {4}));
      const bool overflows = world.rank() == 0 && (state.step == 2 || state.step == 6);
      backward(overflows ? overflowing(loss) : loss);
      strategy.finish_grads(state);
      optimizer->step(1e-3);
      skipped.push_back(!std::isfinite(grad_norm_of(optimizer->read_grad_norm())));
      ++state.step;
    }
    EXPECT_EQ(phases[2], "low-rank");
    EXPECT_EQ(phases[6], "rebound");
    EXPECT_EQ(skipped[2], world.rank() < 2);
    EXPECT_TRUE(skipped[6]);
    EXPECT_EQ(std::count(skipped.begin(), skipped.end(), true), world.rank() < 2 ? 2 : 1);
    strategy.finish(state);  // throws when replicas differ
  });
}

TEST(Precision, HasTheNamesOfTheCommandLine) {
  EXPECT_EQ(precision_named("bf16"), Precision::bf16);
  EXPECT_EQ(precision_names().size(), 4u);
  EXPECT_THROW(precision_named("fp8"), Error);
}

TEST(Tf32Scope, AllowsItAsLongAsItLives) {
  EXPECT_FALSE(tf32_allowed());
  {
    const Tf32Scope allowed(Precision::tf32);
    EXPECT_TRUE(tf32_allowed());
    const Tf32Scope not_here(Precision::fp32);
    EXPECT_FALSE(tf32_allowed());
  }
  EXPECT_FALSE(tf32_allowed());
}

}  // namespace
}  // namespace ab
