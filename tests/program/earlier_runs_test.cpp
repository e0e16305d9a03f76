// SPDX-License-Identifier: MIT
//
// tests/earlier_runs holds what version 0.1.0 wrote before methods were records of their own: settings, metrics, and a
// checkpoint in the middle of the run. This program goes on from there.
#include "apps/config/config.h"
#include "apps/methods/ab.h"
#include "apps/train/run_folder.h"
#include "tests/program_test.h"

namespace ab {
namespace {

namespace fs = std::filesystem;

class EarlierRuns : public testing::ProgramTest, public ::testing::WithParamInterface<const char*> {
 protected:
  std::string stored() const { return std::string(AB_SOURCE_DIR) + "/tests/earlier_runs/" + GetParam(); }
};

TEST_P(EarlierRuns, GoOnFromTheirCheckpoint) {
  fs::copy(stored(), path("whole"), fs::copy_options::recursive);
  fs::copy(stored(), path("resumed"), fs::copy_options::recursive);
  fs::rename(path("whole/expected_summary.json"), path("whole/summary.json"));
  const testing::Outcome outcome = run(fmt::format("train --resume {} --data-dir {}", path("resumed"), small_cifar()));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(testing::contains(outcome.out, "resuming at step 5 "));

  const ab::Run whole = read_run(path("whole")), resumed = read_run(path("resumed"));
  ASSERT_EQ(whole.steps.size(), resumed.steps.size());
  for (std::size_t i = 0; i < whole.steps.size(); ++i) {
    // That version logged rank 0's own loss, this one logs the mean over ranks.
    if (whole.steps[i].step <= 5) {
      EXPECT_EQ(whole.steps[i].loss, resumed.steps[i].loss) << i;
    }
    EXPECT_EQ(whole.steps[i].phase, resumed.steps[i].phase);
    EXPECT_EQ(whole.steps[i].wire_bytes, resumed.steps[i].wire_bytes);
    EXPECT_EQ(whole.steps[i].lr, resumed.steps[i].lr);
  }
  ASSERT_EQ(whole.epochs.size(), resumed.epochs.size());
  for (std::size_t i = 0; i < whole.epochs.size(); ++i)  // of all ranks; another processor rounds otherwise
    EXPECT_NEAR(whole.epochs[i].val_loss, resumed.epochs[i].val_loss, 1e-4) << i;
  EXPECT_NEAR(whole.summary.final_val_loss, resumed.summary.final_val_loss, 1e-4);
  EXPECT_EQ(whole.summary.steps_by_phase, resumed.summary.steps_by_phase);
  EXPECT_EQ(whole.summary.wire_bytes_by_rank, resumed.summary.wire_bytes_by_rank);
  EXPECT_EQ(whole.summary.per_layer, resumed.summary.per_layer);
}

TEST_P(EarlierRuns, HaveSettingsThatMeanTheSame) {
  const TrainConfig config = resolve_train_config({}, stored() + "/config.toml");
  EXPECT_EQ(config.method, GetParam());
  EXPECT_EQ(config.image_size, 4);
  EXPECT_EQ(config.schedule, LrSchedule::Kind::cosine);
  const AbSettings& ab = ab_settings(config);
  if (config.method != "ab") {
    AbSettings defaults = ab_preset("groups");
    defaults.rank_policy.multiple = 1;  // as it was then
    EXPECT_EQ(ab, defaults);
    return;
  }
  EXPECT_EQ(ab.preset, "paper");
  EXPECT_EQ(ab.schedule, (PhaseSchedule{2, 6, 2, 2, /*cut_at_warmup=*/true, /*release_order=*/false}));
  EXPECT_EQ(ab.sync, SyncMode::tangent);
  EXPECT_EQ(ab.execution, Execution::form_w);
  EXPECT_EQ(ab.rank_policy.kind, RankPolicy::Kind::ratio);
}

INSTANTIATE_TEST_SUITE_P(Methods, EarlierRuns, ::testing::Values("dense", "ab"));

}  // namespace
}  // namespace ab
