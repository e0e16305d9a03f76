// SPDX-License-Identifier: MIT
//
// Whole training runs on a few images: the laws that hold between methods, transports and rank counts.
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>

#include "apps/methods/ab.h"
#include "apps/train/evaluate.h"
#include "apps/train/train_loop.h"
#include "data/transform.h"
#include "engine/backend/plan_choice.h"
#include "engine/core/threads.h"
#include "layers/models/models.h"
#include "layers/weight.h"
#include "layers/whitening.h"
#include "tests/error_message.h"
#include "tests/striped_images.h"

namespace ab {
namespace {

const TrainAndTest& data() {
  static const TrainAndTest set{std::make_shared<ImageSet>(test::striped_images(480, 1)),
                                std::make_shared<ImageSet>(test::striped_images(103, 2))};
  return set;
}

TrainConfig small_run(const std::string& method, std::int64_t steps) {
  TrainConfig config;
  config.model = "resnet20";
  config.method = method;
  config.steps = steps;
  config.batch_size = 4;
  config.lr = 0.05;
  config.eval_every = 0;
  config.log_every = 1;
  ab_settings(config).schedule.first_split = 2;
  ab_settings(config).schedule.cycle_steps = 4;
  ab_settings(config).schedule.full_rank_steps = 2;
  ab_settings(config).schedule.rebound_steps = 1;
  return config;
}

struct Outcome {
  Summary summary;
  std::vector<double> losses;
  std::vector<std::string> phases;
  std::vector<SplitMetrics> splits;
  std::vector<std::vector<float>> parameters;  ///< of every rank, all in one row
};

Outcome run(const TrainConfig& config, int ranks, int ranks_per_node = 0) {
  Outcome outcome;
  outcome.parameters.resize(static_cast<std::size_t>(ranks));
  TrainListener listener;
  listener.on_step = [&](const StepMetrics& m, std::int64_t) {
    outcome.losses.push_back(m.loss);
    outcome.phases.push_back(m.phase);
  };
  listener.on_split = [&](const SplitMetrics& m) { outcome.splits.push_back(m); };
  std::mutex mutex;
  run_thread_ranks(ranks, {.ranks_per_node = ranks_per_node}, [&](Comm& world) {
    set_compute_threads(1);
    const TrainResult result = train(config, world, data(), listener);
    std::vector<float> values;
    for (const Param* p : inventory_of(*result.model).params)
      for (double v : p->value.value().to_doubles()) values.push_back(static_cast<float>(v));
    for (const Buffer& buffer : inventory_of(*result.model).buffers)
      for (double v : buffer.value.to_doubles()) values.push_back(static_cast<float>(v));
    const std::lock_guard lock(mutex);
    outcome.parameters[static_cast<std::size_t>(world.rank())] = std::move(values);
    if (world.rank() == 0) outcome.summary = result.summary;
  });
  return outcome;
}

void expect_equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
}

void expect_all_ranks_equal(const Outcome& outcome) {
  for (const auto& parameters : outcome.parameters) expect_equal_bits(parameters, outcome.parameters[0]);
}

TEST(AbTrainingRuns, PhasesFollowTheTimetable) {
  const Outcome outcome = run(small_run("ab", 11), 2);
  const std::vector<std::string> expected{"warmup",   "warmup",   "low-rank", "low-rank", "rebound", "rebound",
                                          "low-rank", "low-rank", "rebound",  "rebound",  "low-rank"};
  EXPECT_EQ(outcome.phases, expected);
  EXPECT_EQ(outcome.summary.steps_by_phase.at("low-rank"), 5);
}

/// Every way to rejoin, with the gauge it belongs to.
class Modes : public testing::TestWithParam<std::pair<SyncMode, Gauge>> {};

TEST_P(Modes, RanksAgreeAfterEverySync) {
  TrainConfig config = small_run("ab", 6);  // ends two full-rank steps after the sync: any difference would show
  ab_settings(config).sync = GetParam().first;
  ab_settings(config).gauge = GetParam().second;
  for (int ranks : {1, 2, 5}) {
    const Outcome outcome = run(config, ranks);
    expect_all_ranks_equal(outcome);
    EXPECT_TRUE(std::isfinite(outcome.summary.final_val_loss));
  }
  for (const MomentCarry moments : {MomentCarry::project, MomentCarry::truncate}) {
    ab_settings(config).moments = moments;
    expect_all_ranks_equal(run(config, 3));
  }
  ab_settings(config).group_size = 2;
  expect_all_ranks_equal(run(config, 5));
  config.optimizer = "adamw";
  config.lr = 1e-3;
  ab_settings(config).moments = MomentCarry::project;
  expect_all_ranks_equal(run(config, 4));
}

INSTANTIATE_TEST_SUITE_P(All, Modes,
                         testing::Values(std::pair{SyncMode::full, Gauge::split_sigma},
                                         std::pair{SyncMode::full, Gauge::orthonormal},
                                         std::pair{SyncMode::with_stale, Gauge::split_sigma},
                                         std::pair{SyncMode::only_learned, Gauge::split_sigma},
                                         std::pair{SyncMode::only_b, Gauge::split_sigma},
                                         std::pair{SyncMode::only_b, Gauge::orthonormal},
                                         std::pair{SyncMode::tangent, Gauge::orthonormal}));

TEST(AbTrainingRuns, ThePapersCombinationRuns) {
  TrainConfig config = small_run("ab", 12);
  config.optimizer = "adamw";
  config.lr = 1e-3;
  config.max_grad_norm = 1.0;
  config.label_smoothing = 0.1;
  ab_settings(config).schedule.release_order = true;
  ab_settings(config).schedule.first_split = 3;
  ab_settings(config).schedule.cut_at_warmup = false;
  ab_settings(config).sync = SyncMode::only_b;
  ab_settings(config).group_size = 2;
  ab_settings(config).gauge = Gauge::split_sigma;
  ab_settings(config).rank_policy.ratio = 0;
  ab_settings(config).moments = MomentCarry::truncate;
  const Outcome outcome = run(config, 4);
  expect_all_ranks_equal(outcome);
  const std::vector<std::string> expected{"warmup",   "warmup",   "warmup",  "low-rank", "rebound",  "rebound",
                                          "low-rank", "low-rank", "rebound", "rebound",  "low-rank", "low-rank"};
  EXPECT_EQ(outcome.phases, expected);
}

TEST(AbTrainingRuns, AModelThatIsLeftDenseTakesNoCutThatNothingTrains) {
  TrainConfig config = small_run("ab", 6);  // the second split would come after its last step
  ab_settings(config).final_model = FinalModel::dense;
  EXPECT_EQ(run(config, 2).splits.size(), 1u);
  config.steps = 7;
  EXPECT_EQ(run(config, 2).splits.size(), 2u);
}

TEST(AbTrainingRuns, ARestThatIsKeptLosesNothingAtASplit) {
  // Without a step between split and sync but one at rate 0, W comes back as it was: the cut cost nothing.
  TrainConfig config = small_run("ab", 2);
  ab_settings(config).schedule.first_split = 1;
  ab_settings(config).rest = Rest::keep;
  ab_settings(config).final_model = FinalModel::dense;
  ab_settings(config).rank_policy.ratio = 0.1;
  config.schedule = LrSchedule::Kind::constant;
  config.lr = 1e-12;
  config.momentum = 0;
  const Outcome ab = run(config, 4), dense = run(
                                         [&] {
                                           TrainConfig c = config;
                                           c.method = "dense";
                                           return c;
                                         }(),
                                         4);
  ASSERT_EQ(ab.parameters[0].size(), dense.parameters[0].size());
  // Running statistics follow the images; the comparison is about the weights, which come first.
  for (std::size_t i = 0; i < 200000; ++i) ASSERT_NEAR(ab.parameters[0][i], dense.parameters[0][i], 2e-6) << i;
  expect_all_ranks_equal(ab);
}

// Steps at a vanishing rate leave W where the cut put it, whatever the mode.
TEST(AbTrainingRuns, WithoutAStepEveryModeRejoinsTheCutWeight) {
  std::vector<float> reference;
  for (const auto& [sync, gauge] : {std::pair{SyncMode::tangent, Gauge::orthonormal},
                                    {SyncMode::full, Gauge::split_sigma},
                                    {SyncMode::only_learned, Gauge::split_sigma},
                                    {SyncMode::with_stale, Gauge::split_sigma},
                                    {SyncMode::only_b, Gauge::orthonormal}}) {
    TrainConfig config = small_run("ab", 4);
    ab_settings(config).sync = sync;
    ab_settings(config).gauge = gauge;
    ab_settings(config).final_model = FinalModel::dense;
    ab_settings(config).schedule.first_split = 0;
    config.lr = 1e-12;
    config.weight_decay = 0;
    config.momentum = 0;
    const Outcome outcome = run(config, 4);
    if (reference.empty()) reference = outcome.parameters[0];
    ASSERT_EQ(outcome.parameters[0].size(), reference.size());
    double worst = 0;
    for (std::size_t i = 0; i < reference.size(); ++i)
      worst = std::max(worst, static_cast<double>(std::abs(outcome.parameters[0][i] - reference[i])));
    EXPECT_LT(worst, 2e-5) << static_cast<int>(sync);
  }
}

TEST(AbTrainingRuns, SendsFewerBytesAndCountsThemByPhase) {
  const Outcome dense = run(small_run("dense", 10), 4), ab = run(small_run("ab", 10), 4);
  const auto& phases = ab.summary.wire_bytes_per_rank_by_phase;
  const double dense_step = dense.summary.wire_bytes_per_rank_by_phase.at("full") / 10;
  EXPECT_DOUBLE_EQ(phases.at("warmup") / 2, dense_step);
  EXPECT_DOUBLE_EQ(phases.at("rebound") / 4, dense_step);
  EXPECT_LT(phases.at("low-rank") / 4, 0.5 * dense_step);
  double sum = 0;
  for (const auto& [phase, bytes] : phases) sum += bytes;
  EXPECT_NEAR(sum, ab.summary.wire_bytes_per_rank_total, 1e-6 * sum);
}

TEST(AbTrainingRuns, GroupsInsideANodeSendNothingAcrossNodes) {
  // Two nodes of two ranks, groups of two: in low-rank phases all gradients stay inside a node.
  TrainConfig config = small_run("ab", 4);
  ab_settings(config).schedule.first_split = 0;
  ab_settings(config).schedule.cycle_steps = 6;
  ab_settings(config).final_model = FinalModel::dense;
  const auto inter_node = [&](std::int64_t steps) {
    config.steps = steps;
    return run(config, 4, 2).summary.inter_node_bytes_per_rank_total;
  };
  const double after_two = inter_node(2);
  EXPECT_GT(after_two, 0);  // the split and the final sync cross nodes
  // One more low-rank step does not; what ranks exchange to stop together is 8 bytes, 2 · 3/4 of them sent, over
  // the 2 of 4 links that join nodes.
  EXPECT_DOUBLE_EQ(inter_node(3), after_two + 8 * 2 * 0.75 * 0.5);
}

TEST(AbTrainingRuns, ARunThatEndsWithFactorsKeepsThem) {
  const Outcome outcome = run(small_run("ab", 3), 2);
  EXPECT_LT(outcome.summary.parameters_final, outcome.summary.parameters_full);
  ASSERT_FALSE(outcome.splits.empty());
  for (const LayerRank& layer : outcome.splits.back().layers) EXPECT_EQ(layer.r, (layer.n + 1) / 2) << layer.name;
}

TEST(AbTrainingRuns, ARunThatEndsWithItsFirstSplitIsNotCut) {
  const Outcome outcome = run(small_run("ab", 2), 2);
  EXPECT_TRUE(outcome.splits.empty()) << "nothing would train the factors";
  EXPECT_EQ(outcome.summary.parameters_final, outcome.summary.parameters_full);
}

TEST(AbTrainingRuns, EvaluationInALowRankPhaseChangesNothing) {
  TrainConfig config = small_run("ab", 60);
  ab_settings(config).schedule.cycle_steps = 70;
  config.schedule = LrSchedule::Kind::constant;
  const Outcome silent = run(config, 2);
  config.eval_every = 1;  // an epoch of 480 images is 60 steps of 2 · 4
  config.steps = 61;
  const Outcome evaluated = run(config, 2);
  for (std::size_t i = 0; i < 60; ++i) ASSERT_EQ(silent.losses[i], evaluated.losses[i]);
  config.eval_every = 0;
  const Outcome unseen = run(config, 2);
  EXPECT_EQ(unseen.losses.back(), evaluated.losses.back());
}

TEST(Training, LearnsTheStripes) {
  TrainConfig config = small_run("dense", 60);
  config.batch_size = 8;
  config.augment = false;
  EXPECT_GT(run(config, 2).summary.final_val_top1, 0.8);
  config.method = "ab";
  ab_settings(config).schedule.first_split = 20;
  ab_settings(config).schedule.cycle_steps = 20;
  ab_settings(config).schedule.full_rank_steps = 5;
  EXPECT_GT(run(config, 2).summary.final_val_top1, 0.7);
}

/// What a model says to all images of a set, moved by `by`.   [N, classes]
std::vector<double> logits_of(Layer& model, const Dataset& set, const Shift& by) {
  const Tensor images({set.count, 32, 32, 3});
  ImageTransform transform(set, 32, 32);
  Image unused;
  for (std::int64_t i = 0; i < set.count; ++i)
    transform.prepare(set.read(i, unused), images.data<float>() + i * 32 * 32 * 3, by);
  return model.forward(Var(images)).value().to_doubles();
}

TEST(Evaluation, ViewsAreAMeanOfLogits) {
  const auto model = make_model({.name = "mlp", .width = 0.1});
  const Dataset& set = *data().test;
  std::vector<double> mean(static_cast<std::size_t>(set.count * 10));
  for (const int shift : {0, -1, 1})
    for (const bool flip : {false, true}) {
      const auto of_view = logits_of(*model, set, {shift, shift, flip, true});
      for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += of_view[i] * (shift == 0 ? 0.25 : 0.125);
    }
  double loss = 0;
  for (std::int64_t i = 0; i < set.count; ++i) {
    const double* logits = mean.data() + i * 10;
    double sum = 0;
    for (int c = 0; c < 10; ++c) sum += std::exp(logits[c]);
    loss += (std::log(sum) - logits[set.label(i)]) / static_cast<double>(set.count);
  }
  const std::unique_ptr<Comm> self = make_self_comm();
  EXPECT_NEAR(evaluate(*model, set, *self, {.views = true})->loss, loss, 1e-5);
  EXPECT_GT(std::abs(evaluate(*model, set, *self)->loss - loss), 1e-4);
}

TEST(Training, EndsWithAValidationOfViewsWhenAskedTo) {
  TrainConfig config = small_run("dense", 2);
  config.model = "conv6_cifar", config.width = 0.125, config.val_views = true, config.ema_decay = 0.5;
  const TrainResult result = train(config, *make_self_comm(), data(), {});
  const Evaluation of_average = *evaluate(*result.average, *data().test, *make_self_comm(), {.views = true});
  EXPECT_EQ(result.summary.views_val_top1, of_average.top1);
  EXPECT_NE(evaluate(*result.average, *data().test, *make_self_comm())->loss, of_average.loss);
  config.val_views = false;
  EXPECT_TRUE(std::isnan(train(config, *make_self_comm(), data(), {}).summary.views_val_top1));
}

TEST(Training, WhitensByItsImagesAlikeOnAnyNumberOfRanks) {
  const auto model = make_model({.name = "conv6_cifar", .width = 0.125});
  std::ptrdiff_t buffers = 0;  // the filters first
  for (const Buffer& buffer : inventory_of(*model).buffers) buffers += buffer.value.numel();
  const auto filters = [&](int ranks, const char* method) {
    TrainConfig config = small_run(method, 7);
    config.model = "conv6_cifar", config.width = 0.125;
    const Outcome outcome = run(config, ranks);
    expect_all_ranks_equal(outcome);
    const auto first = outcome.parameters[0].end() - buffers;
    return std::vector<float>(first, first + 24 * 12);
  };
  Whitening fitted("whiten", {});
  const Tensor images({data().train->count, 32, 32, 3});
  ImageTransform transform(*data().train, 32, 32);
  Image unused;
  for (std::int64_t i = 0; i < data().train->count; ++i)
    transform.prepare(data().train->read(i, unused), images.data<float>() + i * 32 * 32 * 3);
  fitted.fit(images);
  const auto expected = fitted.filters().span<float>();
  expect_equal_bits(filters(1, "dense"), {expected.begin(), expected.end()});
  for (const char* method : {"dense", "ab", "local"})  // an average over three ranks would round
    expect_equal_bits(filters(3, method), {expected.begin(), expected.end()});
}

TEST(Training, AnAverageTakesTheRejoinedModelNotTheCutThatARunLeaves) {
  const auto average_of = [](FinalModel final_model) {
    TrainConfig config = small_run("ab", 4);  // ends among factors
    config.ema_decay = 0.5;
    ab_settings(config).final_model = final_model;
    std::vector<float> values;
    run_thread_ranks(2, {}, [&](Comm& world) {
      set_compute_threads(1);
      const TrainResult result = train(config, world, data(), {});
      if (world.rank() == 0)
        for (const Param* p : inventory_of(*result.average).params)
          for (const float value : p->value.value().span<float>()) values.push_back(value);
    });
    return values;
  };
  expect_equal_bits(average_of(FinalModel::factors), average_of(FinalModel::dense));
}

TEST(Training, SettingsOfTheRecipeReachTheRun) {
  const auto losses = [](const std::function<void(TrainConfig&)>& change) {
    TrainConfig config = small_run("dense", 3);
    change(config);
    return run(config, 1).losses;
  };
  const auto plain = losses([](TrainConfig&) {});
  EXPECT_NE(losses([](TrainConfig& c) { c.shift = 2; }), plain);
  EXPECT_NE(losses([](TrainConfig& c) { c.vector_lr = 8; }), plain);
  EXPECT_NE(losses([](TrainConfig& c) { c.init = Init::dirac; }), plain);
}

/// A set whose images take a while to read.
class SlowSet final : public ImageSet {
 public:
  SlowSet() : ImageSet(test::striped_images(64, 1)) {}
  ImageView read(std::int64_t i, Image& buffer, const ChoosePart& part) const override {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return ImageSet::read(i, buffer, part);
  }
};

// Of three steps by one thread that reads four images of 20 ms for each, the first waits for all of its images.
TEST(Training, TellsHowLongRanksWaitForImages) {
  TrainConfig config = small_run("dense", 3);
  config.model = "mlp", config.width = 0.1, config.loader_threads = 1;
  double told = 0;
  TrainListener listener;
  listener.on_step = [&](const StepMetrics& m, std::int64_t) { told += m.image_waiting_seconds; };
  const TrainAndTest slow{std::make_shared<SlowSet>(), data().test};
  const Summary summary = train(config, *make_self_comm(), slow, listener).summary;
  EXPECT_GT(summary.image_waiting_seconds, 0.08);
  EXPECT_LT(summary.image_waiting_seconds, summary.train_seconds);
  EXPECT_NEAR(told, summary.image_waiting_seconds, 1e-9);
}

TEST(Training, OperationsFollowTheKindOfTheStep) {
  TrainConfig config = small_run("ab", 7);
  TrainListener listener;
  listener.peak_flops = 1e10;
  std::map<std::string, std::vector<double>> of_phase;  // operations of an image
  listener.on_step = [&](const StepMetrics& m, std::int64_t) {
    of_phase[m.phase].push_back(m.flops_per_second / m.images_per_second);
    EXPECT_DOUBLE_EQ(m.peak_share, m.flops_per_second / 1e10);
  };
  run_thread_ranks(1, {}, [&](Comm& world) {
    set_compute_threads(1);
    const Summary summary = train(config, world, data(), listener).summary;
    double least = 1e30, most = 0;
    for (const auto& [phase, flops] : of_phase)
      for (const double of_image : flops) least = std::min(least, of_image), most = std::max(most, of_image);
    EXPECT_LT(least, most) << "factors";
    EXPECT_GE(summary.flops_per_second / summary.images_per_second, least);
    EXPECT_LE(summary.flops_per_second / summary.images_per_second, most);
    EXPECT_DOUBLE_EQ(summary.peak_share, summary.flops_per_second / 1e10);
  });
  const std::vector<double>& full = of_phase.at("warmup");
  EXPECT_NEAR(full.front(), full.back(), 1e-9 * full.front());
  EXPECT_NEAR(full.front(), 6 * 40.6e6, 0.2 * 6 * 40.6e6)
      << "three passes of ResNet-20, whose authors count 40.6 M multiplications";
}

TEST(Training, TwoRunsAreBitwiseEqual) {
  const Outcome a = run(small_run("ab", 7), 4), b = run(small_run("ab", 7), 4);
  EXPECT_EQ(a.losses, b.losses);
  expect_equal_bits(a.parameters[0], b.parameters[0]);
}

/// A model that notes how plans are chosen when it is used.
class Notes final : public Composite {
 public:
  explicit Notes(std::unique_ptr<Layer> model) : model_(std::move(model)) {}
  Var forward(const Var& x) override {
    choices_.push_back(plan_choice());
    return model_->forward(x);
  }
  const std::vector<PlanChoice>& choices() const { return choices_; }

 private:
  std::vector<Layer*> parts() override { return {model_.get()}; }

  std::unique_ptr<Layer> model_;
  std::vector<PlanChoice> choices_;
};

// The model is used by two steps and by the validation; in between, ranks update and synchronise.
TEST(Training, PlansAreChosenAsConfigured) {
  using enum PlanChoice;
  struct {
    bool autotune, deterministic;
    PlanChoice in_steps, else_where;
  } const cases[] = {{false, false, heuristic, heuristic},
                     {true, false, timed, heuristic},
                     {false, true, deterministic, deterministic}};
  for (const auto& c : cases) {
    TrainConfig config = small_run("dense", 2);
    config.autotune = c.autotune;
    config.deterministic = c.deterministic;
    run_thread_ranks(2, {}, [&](Comm& world) {
      TrainListener listener;
      listener.on_step = [&](const StepMetrics&, std::int64_t) { EXPECT_EQ(plan_choice(), c.else_where); };
      auto notes = std::make_unique<Notes>(make_model({.name = "resnet20", .classes = data().train->classes}));
      const TrainResult result = train(config, world, data(), listener, {}, std::move(notes));
      const auto& choices = dynamic_cast<const Notes&>(*result.model).choices();
      ASSERT_EQ(choices.size(), world.rank() == 0 ? 3u : 2u) << "the few test images are one batch of rank 0";
      for (std::size_t i = 0; i < choices.size(); ++i)
        EXPECT_EQ(choices[i], i < 2 ? c.in_steps : c.else_where) << "use " << i;
      EXPECT_EQ(plan_choice(), heuristic) << "the run is over";
    });
  }
}

TEST(Training, ADivergingRunEndsWithANumericsError) {
  TrainConfig config = small_run("dense", 40);
  config.lr = 1e30;
  try {
    run(config, 2);
    FAIL() << "a run at rate 1e30 went through";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::numerics);
  }
}

// The loss of its one step is finite, and so are its weights.
TEST(Training, AValidationThatIsNotFiniteEndsTheRun) {
  TrainConfig config = small_run("dense", 1);
  config.model = "mlp";
  config.lr = 1e18;
  try {
    run(config, 2);
    FAIL() << "a model without a loss went through";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::numerics);
    EXPECT_TRUE(test::contains(error.what(), "the validation loss became"));
    EXPECT_TRUE(test::contains(error.what(), "at step 1"));
  }
}

// The loss of the one step is finite; its update is not.
TEST(Training, AModelThatIsNotFiniteIsNotPublished) {
  TrainConfig config = small_run("dense", 1);
  config.model = "mlp";
  config.weight_decay = 1e30;
  config.lr = 1e30;
  try {
    run(config, 2);
    FAIL() << "a model of infinities went through";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::numerics);
    EXPECT_TRUE(test::contains(error.what(), "holds NaN or infinity"));
  }
}

}  // namespace
}  // namespace ab
