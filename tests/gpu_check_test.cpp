// SPDX-License-Identifier: MIT
//
// bench/gpu_check.sh where there is no GPU, and the table that it prints.
#include <regex>

#include "engine/backend/cuda/device.h"
#include "tests/program_test.h"

namespace ab {
namespace {

class GpuCheckTest : public testing::ProgramTest {
 protected:
  testing::Outcome gpu_check(const std::string& flags) const {
    return run_command(fmt::format("'{}/bench/gpu_check.sh' --build '{}' --out {} {}", AB_SOURCE_DIR, AB_BUILD_DIR,
                                   path("logs"), flags));
  }

  /// A script that sources check_table.sh with a budget in seconds for all checks.
  testing::Outcome table(int budget, const std::string& script) const {
    return run_command(
        fmt::format("bash -euo pipefail -c 'check_logs={} check_budget={}; . \"{}/bench/check_table.sh\"; {}'", folder_,
                    budget, AB_SOURCE_DIR, script));
  }
};

TEST_F(GpuCheckTest, SaysWhyThereIsNoGpu) {
  if (cuda_device_count() > 0) GTEST_SKIP() << "this machine has a GPU";
  const testing::Outcome outcome = gpu_check("");
  EXPECT_EQ(outcome.exit_code, 6) << outcome.out;
  EXPECT_EQ(outcome.err, "gpu_check.sh: no GPU to check: " + cuda_unavailable_reason() + "\n");
}

TEST_F(GpuCheckTest, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(gpu_check("--fast").exit_code, 2);
  EXPECT_EQ(gpu_check("--only").exit_code, 2);
  EXPECT_EQ(gpu_check("--build " + path("nothing")).exit_code, 2);
}

TEST_F(GpuCheckTest, ListsItsChecksWithoutRunningThem) {
  const testing::Outcome all = gpu_check("--dry-run");
  EXPECT_EQ(all.exit_code, 0) << all.err;
  for (const char* check : {"device", "op_test", "memcheck", "train_ab_4_threads", "comm_test_nccl", "train_ab_2_nccl", "factored_bench"})
    EXPECT_TRUE(std::regex_search(all.out, std::regex(fmt::format("\n{} +(not run|skipped) ", check)))) << all.out;
  const testing::Outcome some = gpu_check("--dry-run --only 'train_*'");
  EXPECT_TRUE(testing::contains(some.out, "train_dense"));
  EXPECT_EQ(some.out.find("op_test"), std::string::npos) << some.out;
}

TEST_F(GpuCheckTest, RanksAreNumberedAndTheWorstExitCodeCounts) {
  const testing::Outcome outcome = run_command(fmt::format(
      "'{}/bench/run_ranks.sh' 3 sh -c 'echo $RANK of $WORLD_SIZE at $AB_RENDEZVOUS; exit $((RANK * 3 % 5))'",
      AB_SOURCE_DIR));
  EXPECT_EQ(outcome.exit_code, 3);
  for (const int rank : {0, 1, 2})
    EXPECT_TRUE(testing::contains(outcome.out, fmt::format("{} of 3 at file:///", rank)));
}

TEST_F(GpuCheckTest, TableTellsEveryResultAndFailsWithTheWorst) {
  const testing::Outcome good = table(60, "check first 5 echo \"note: all is well\"; skip second no time; print_table");
  EXPECT_EQ(good.exit_code, 0) << good.err;
  EXPECT_TRUE(std::regex_search(good.out, std::regex("\nfirst +passed +\\d+  all is well\nsecond +skipped +-  no time")))
      << good.out;

  const testing::Outcome bad = table(
      60, "check bad 5 false; check slow 1 sleep 20; check good 5 true; check none 5 bash -c \"exit 77\"; print_table");
  EXPECT_EQ(bad.exit_code, 1) << bad.err;
  EXPECT_TRUE(std::regex_search(bad.out, std::regex("\nbad +FAILED +\\d+  exit code 1, see .*bad\\.log\n"))) << bad.out;
  EXPECT_TRUE(std::regex_search(bad.out, std::regex("\nslow +FAILED +\\d+  longer than 1 s"))) << bad.out;
  EXPECT_TRUE(std::regex_search(bad.out, std::regex("\ngood +passed +\\d+  \nnone +skipped "))) << bad.out;
}

TEST_F(GpuCheckTest, ChecksShareABudget) {
  const testing::Outcome outcome = table(1, "check long 9 sleep 20; check late 9 true; print_table");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_TRUE(std::regex_search(outcome.out, std::regex("\nlong +FAILED +\\d+  longer than 1 s"))) << outcome.out;
  EXPECT_TRUE(std::regex_search(outcome.out, std::regex("\nlate +FAILED +0  "))) << outcome.out;
}

}  // namespace
}  // namespace ab
