// SPDX-License-Identifier: MIT
//
// A run that stops at any step and is resumed is, bit for bit, the run that never stopped.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <mutex>

#include "apps/methods/ab.h"
#include "apps/train/run_folder.h"
#include "apps/train/stop_request.h"
#include "apps/train/train_loop.h"
#include "engine/core/threads.h"
#include "engine/io/checkpoint_folder.h"
#include "tests/error_message.h"
#include "tests/striped_images.h"

namespace ab {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kResumeSteps = 13;

/// An odd number of images, so that epochs end with a smaller window of micro-batches.
/// Phases of a few steps each, epochs that end within them, and every kind of state there is.
TrainConfig short_run() {
  TrainConfig config;
  config.model = "vgg11_bn_cifar";
  config.width = 0.0625;
  config.method = "ab";
  config.steps = kResumeSteps;
  config.batch_size = 4;
  config.accumulate = 2;
  config.lr = 0.02;
  config.label_smoothing = 0.1;
  config.repeated_augment = 3;
  config.ema_decay = 0.8;
  config.log_every = 1;
  ab_settings(config).schedule.first_split = 2;
  ab_settings(config).schedule.cycle_steps = 5;
  ab_settings(config).schedule.full_rank_steps = 2;
  ab_settings(config).schedule.rebound_steps = 2;
  config.out = testing::TempDir() + "abtrain_resume_" + testing::UnitTest::GetInstance()->current_test_info()->name();
  return config;
}

struct ResumeOutcome {
  bool stopped = false;
  Summary summary;
  std::map<std::int64_t, double> losses;  ///< by step
  std::vector<double> validation;
  std::vector<std::vector<double>> models;  ///< of every rank: all parameters, buffers and averaged weights
};

std::vector<double> values_of(const TrainResult& result) {
  std::vector<double> values;
  for (Layer* model : {result.model.get(), result.average.get()}) {
    if (!model) continue;
    for (const Param* p : inventory_of(*model).params)
      for (double v : p->value.value().to_doubles()) values.push_back(v);
    for (const Buffer& buffer : inventory_of(*model).buffers)
      for (double v : buffer.value.to_doubles()) values.push_back(v);
  }
  return values;
}

/// Trains on from what config.out holds; tells the run to stop after `stop_after` steps, or when it validates.
ResumeOutcome train_on(const TrainConfig& config, int ranks, std::int64_t stop_after = -1,
                       const TrainAndTest& images = test::striped_sets(83, 21)) {
  ResumeOutcome outcome;
  outcome.models.resize(static_cast<std::size_t>(ranks));
  const std::string folder = in_folder(config.out, kCheckpointFolder);
  TrainListener listener;
  listener.on_step = [&](const StepMetrics& m, std::int64_t) {
    outcome.losses[m.step] = m.loss;
    if (m.step == stop_after) request_stop();  // heard before the next step, or in the validation before it
  };
  listener.on_epoch = [&](const EpochMetrics& m) { outcome.validation.push_back(m.val_loss); };
  clear_stop_request();
  std::mutex mutex;
  run_thread_ranks(ranks, {.ranks_per_node = 2}, [&](Comm& world) {
    set_compute_threads(1);
    std::optional<Checkpoint> checkpoint;
    if (fs::exists(folder)) checkpoint = load_newest_checkpoint(folder, world);
    const TrainResult result = train(config, world, images, listener, checkpoint);
    const std::lock_guard lock(mutex);
    outcome.stopped = result.stopped;
    if (result.stopped) return;
    outcome.models[static_cast<std::size_t>(world.rank())] = values_of(result);
    if (world.rank() == 0) outcome.summary = result.summary;
  });
  clear_stop_request();
  if (!outcome.stopped) remove_last_checkpoint(config, outcome.summary.steps);
  return outcome;
}

/// What both parts of a run said, the later word counting.
ResumeOutcome joined(ResumeOutcome first, ResumeOutcome second) {
  second.losses.merge(first.losses);
  second.validation.insert(second.validation.begin(), first.validation.begin(), first.validation.end());
  return second;
}

void expect_same_run(const ResumeOutcome& a, const ResumeOutcome& b, const std::string& what) {
  EXPECT_EQ(a.losses, b.losses) << what;
  EXPECT_EQ(a.validation, b.validation) << what;
  EXPECT_EQ(a.models == b.models, true) << what;
  EXPECT_EQ(a.summary.final_val_loss, b.summary.final_val_loss) << what;
  EXPECT_EQ(std::isnan(a.summary.average_val_top1), std::isnan(b.summary.average_val_top1)) << what;
  if (!std::isnan(a.summary.average_val_top1)) {
    EXPECT_EQ(a.summary.average_val_top1, b.summary.average_val_top1) << what;
  }
  EXPECT_EQ(a.summary.best_val_top1, b.summary.best_val_top1) << what;
  EXPECT_EQ(a.summary.steps_by_phase, b.summary.steps_by_phase) << what;
}

void expect_same_traffic(const Summary& whole, const Summary& resumed) {
  EXPECT_EQ(whole.wire_bytes_per_rank_by_phase, resumed.wire_bytes_per_rank_by_phase);
}

std::string checkpoint_of(const TrainConfig& config, std::int64_t step) {
  return fmt::format("{}/{}/step_{:012}", config.out, kCheckpointFolder, step);
}

/// One run that saves after every step, and one from each of its checkpoints; that of the last one only validates.
void resume_everywhere(TrainConfig config, int ranks) {
  fs::remove_all(config.out);
  const ResumeOutcome whole = train_on(config, ranks);
  ASSERT_EQ(whole.losses.size(), static_cast<std::size_t>(kResumeSteps));
  config.save_every = 1;
  config.keep_checkpoints = 100;
  const ResumeOutcome saving = train_on(config, ranks);
  expect_same_run(whole, saving, "with checkpoints");
  expect_same_traffic(whole.summary, saving.summary);
  for (std::int64_t step = kResumeSteps; step > 0; --step) {
    fs::remove_all(checkpoint_of(config, step + 1));
    fs::copy(in_folder(config.out, kCheckpointFolder), config.out + "_all", fs::copy_options::recursive);
    const ResumeOutcome rest = train_on(config, ranks);
    ASSERT_EQ(rest.losses.size(), static_cast<std::size_t>(kResumeSteps - step));
    ResumeOutcome before = saving;
    std::erase_if(before.losses, [&](const auto& loss) { return loss.first > step; });
    before.validation.resize(whole.validation.size() - rest.validation.size());
    expect_same_run(whole, joined(before, rest), fmt::format("resumed after step {}", step));
    expect_same_traffic(whole.summary, rest.summary);
    fs::remove_all(in_folder(config.out, kCheckpointFolder));
    fs::rename(config.out + "_all", in_folder(config.out, kCheckpointFolder));
  }
  fs::remove_all(config.out);
}

/// Told to stop after a step, or while it validates after it.
void stop_after(TrainConfig config, int ranks, std::int64_t step) {
  fs::remove_all(config.out);
  const ResumeOutcome whole = train_on(config, ranks);
  const ResumeOutcome first = train_on(config, ranks, step);
  ASSERT_TRUE(first.stopped);
  const ResumeOutcome second = train_on(config, ranks);
  ASSERT_FALSE(second.stopped);
  expect_same_run(whole, joined(first, second), fmt::format("stopped after step {}", step));
  expect_same_traffic(whole.summary, second.summary);
  fs::remove_all(config.out);
}

TEST(Resume, AbTraining) { resume_everywhere(short_run(), 2); }

TEST(Resume, AbTrainingWithARestAndFourRanksInTwoGroups) {
  TrainConfig config = short_run();
  ab_settings(config).rest = Rest::keep;
  ab_settings(config).final_model = FinalModel::dense;
  ab_settings(config).group_size = 2;
  config.accumulate = 1;
  config.batch_size = 3;
  resume_everywhere(config, 4);
}

/// Three epochs of DASO, the last one at another pace, as the loss does not fall to a tenth.
TrainConfig short_daso_run() {
  TrainConfig config = short_run();
  config.method = "daso";
  config.method_options = resolve_config_text({{"method", "daso"}},
                                              "[daso]\nblocking_epochs = 0\ncooldown_epochs = 0\nstart_skips = 2\n"
                                              "stability = 0.9\npatience = 0\n",
                                              "daso")
                              .method_options;
  return config;
}

TEST(Resume, DasoThatFollowsTheLoss) { resume_everywhere(short_daso_run(), 2); }

TEST(Resume, AStopInAValidationTellsTheEndOfItsEpochOnce) { stop_after(short_daso_run(), 2, 5); }

/// Four ranks on two nodes, and 16 bits between them.
TrainConfig short_run_on_nodes(const char* method, const std::string& own) {
  TrainConfig config = short_run();
  config.method = method;
  config.method_options =
      resolve_config_text({{"method", method}}, fmt::format("[{}]\n{}\n", method, own), method).method_options;
  config.ranks_per_node = 2;
  config.comm_dtype = DType::bfloat16;
  config.accumulate = 1;
  return config;
}

TEST(Resume, LocalTrainingOnNodes) {
  stop_after(short_run_on_nodes("local", "node_size = 0\naverage_every = 5"), 4, 3);
}

TEST(Resume, DilocoWithAFragmentInFlight) {
  stop_after(short_run_on_nodes("diloco", "inner_steps = 12\nfragments = 2\noverlap_steps = 4\nmixing = 0.5"), 4, 2);
}

TEST(Resume, DasoOnNodes) {
  stop_after(short_run_on_nodes("daso", "blocking_epochs = 0\ncooldown_epochs = 1\nstart_skips = 3\nstart_wait = 2"), 4,
             2);
}

TEST(Resume, AbTrainingAsReleasedWithAdamW) {
  TrainConfig config = short_run();
  config.optimizer = "adamw";
  config.lr = 1e-3;
  ab_settings(config).sync = SyncMode::with_stale;
  ab_settings(config).gauge = Gauge::split_sigma;
  ab_settings(config).moments = MomentCarry::truncate;
  ab_settings(config).schedule.cut_at_warmup = false;
  ab_settings(config).schedule.release_order = true;
  resume_everywhere(config, 2);
}

TEST(Resume, AbTrainingWithBatchNormSynchronisedInGroups) {
  TrainConfig config = short_run();
  config.sync_bn = SyncBn::group;
  ab_settings(config).group_size = 2;
  config.batch_size = 2;
  config.ema_decay = 0;
  resume_everywhere(config, 4);
}

TEST(Resume, AbTrainingInBfloat16) {
  TrainConfig config = short_run();
  config.precision = "bf16";
  resume_everywhere(config, 2);
}

// So few images that gradients overflow at first, and the scale of the loss changes on the way.
TEST(Resume, AbTrainingInFloat16WithItsLossScale) {
  TrainConfig config = short_run();
  config.precision = "fp16";
  config.batch_size = 2;
  config.accumulate = 1;
  config.optimizer = "adamw";
  config.lr = 1e-3;
  resume_everywhere(config, 2);
}

TEST(Resume, Dense) {
  TrainConfig config = short_run();
  config.method = "dense";
  resume_everywhere(config, 3);
}

TEST(Stop, InTheMiddleOfAnEpoch) {
  for (const std::int64_t step : {1, 6}) stop_after(short_run(), 2, step);
}

TEST(Stop, WhileItValidates) {
  stop_after(short_run(), 2, 5);  // the last step of an epoch, among factors
  TrainConfig config = short_run();
  config.method = "dense";
  config.batch_size = 2;
  stop_after(config, 7, 3);  // means of means of seven are not the same bits
}

TEST(Stop, InTheLastStepsAndTheLastValidation) {
  for (const std::int64_t step : {kResumeSteps - 2, kResumeSteps}) stop_after(short_run(), 2, step);
  TrainConfig config = short_run();
  config.method = "dense";
  config.eval_every = 0;
  stop_after(config, 3, kResumeSteps);
}

/// Images of which one cannot be read.
class DamagedSet : public ImageSet {
 public:
  explicit DamagedSet(ImageSet set) : ImageSet(std::move(set)) {}
  ImageView read(std::int64_t i, Image& buffer, const ChoosePart& part = {}) const override {
    AB_CHECK_KIND(data, i != count / 2, "image {} is damaged", i);
    return ImageSet::read(i, buffer, part);
  }
};

TEST(LastValidation, ADamagedImageCostsNoTraining) {
  TrainConfig config = short_run();
  config.eval_every = 0;
  fs::remove_all(config.out);
  const ResumeOutcome whole = train_on(config, 2);
  EXPECT_FALSE(fs::exists(in_folder(config.out, kCheckpointFolder))) << "a finished run keeps what it was told to keep";
  const TrainAndTest damaged{test::striped_sets(83, 21).train,
                             std::make_shared<DamagedSet>(test::striped_images(21, 2))};
  EXPECT_TRUE(test::contains(test::message_of(ErrorKind::data, [&] { train_on(config, 2, -1, damaged); }),
                             "image 10 is damaged"));
  ASSERT_TRUE(fs::exists(checkpoint_of(config, kResumeSteps)));
  const ResumeOutcome mended = train_on(config, 2);
  EXPECT_TRUE(mended.losses.empty()) << "it trained again";
  EXPECT_TRUE(mended.models == whole.models);
  EXPECT_EQ(mended.summary.final_val_loss, whole.summary.final_val_loss);
  expect_same_traffic(whole.summary, mended.summary);
  EXPECT_FALSE(fs::exists(in_folder(config.out, kCheckpointFolder)));
  fs::remove_all(config.out);
}

TEST(LastValidation, ItsCheckpointIsOneMoreThanTheRunKeeps) {
  TrainConfig config = short_run();
  config.save_every = 5;
  config.keep_checkpoints = 2;
  fs::remove_all(config.out);
  train_on(config, 1);
  EXPECT_EQ(checkpoints_in(in_folder(config.out, kCheckpointFolder)), (std::vector<std::int64_t>{10, 5}));
  fs::remove_all(config.out);
}

TEST(Accumulation, EqualsOneLargeBatchAlsoInTheLastWindow) {
  // Without batch norm the mean gradient of micro-batches is that of their union. 84 images in batches of 4 are 21
  // micro-batches a rank: windows of 6 6 6 3.
  const TrainAndTest images{std::make_shared<ImageSet>(test::striped_images(84, 1)),
                            std::make_shared<ImageSet>(test::striped_images(20, 2))};
  TrainConfig config = short_run();
  config.model = "mlp";
  config.method = "dense";
  config.augment = false;
  config.ema_decay = 0;
  config.schedule = LrSchedule::Kind::constant;
  config.steps = 0;
  config.epochs = 1;
  config.batch_size = 4;
  config.accumulate = 6;
  const auto losses = [&](const TrainConfig& c) {
    std::vector<double> all;
    TrainListener listener;
    listener.on_step = [&](const StepMetrics& m, std::int64_t) { all.push_back(m.loss); };
    train(c, *make_self_comm(), images, listener);
    return all;
  };
  const std::vector<double> accumulated = losses(config);
  ASSERT_EQ(accumulated.size(), 4u);
  config.batch_size = 24;  // of which an epoch has three: the last window is not among them
  config.accumulate = 1;
  const std::vector<double> large = losses(config);
  ASSERT_EQ(large.size(), 3u);
  for (std::size_t i = 0; i < large.size(); ++i) EXPECT_NEAR(accumulated[i], large[i], 2e-6);
  // The last window alone, from the same state: 12 images in one batch against 3 × 4.
  config.batch_size = 12;
  config.accumulate = 2;
  const std::vector<double> by_twelve = losses(config);
  ASSERT_EQ(by_twelve.size(), 4u);
  EXPECT_NEAR(by_twelve[3], accumulated[3], 2e-6);
}

}  // namespace
}  // namespace ab
