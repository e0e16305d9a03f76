// SPDX-License-Identifier: MIT
//
// bench/gpu_check.sh where there is no GPU, and the table that it prints.
#include <map>
#include <regex>

#include "engine/device/device.h"
#include "tests/program_test.h"

namespace ab {
namespace {

class GpuCheckTest : public test::ProgramTest {
 protected:
  test::Outcome gpu_check(const std::string& flags) const {
    return run_command(fmt::format("'{}/bench/gpu_check.sh' --build '{}' --out {} {}", AB_SOURCE_DIR, AB_BUILD_DIR,
                                   path("out"), flags));
  }

  /// A script that sources table.sh with a budget in seconds for all checks.
  test::Outcome table(int budget, const std::string& script) const {
    return run_command(fmt::format(
        "bash -euo pipefail -c 'scratch={} check_logs={} check_table={} check_budget={}; . \"{}/bench/gpu_check/table.sh\"; "
        "begin_table; {}; end_table'",
        folder_, folder_, path("table.txt"), budget, AB_SOURCE_DIR, script));
  }
};

TEST_F(GpuCheckTest, SaysWhyThereIsNoGpu) {
  if (cuda_device_count() > 0) GTEST_SKIP() << "this machine has a GPU";
  const test::Outcome outcome = gpu_check("correctness");
  EXPECT_EQ(outcome.exit_code, 6) << outcome.out;
  EXPECT_EQ(outcome.err, "gpu_check.sh: no GPU to check: " + cuda_unavailable_reason() + "\n");
}

TEST_F(GpuCheckTest, RefusesWhatItDoesNotKnow) {
  const auto refused = [&](const std::string& flags, const std::string& why) {
    const test::Outcome outcome = gpu_check(flags);
    EXPECT_EQ(outcome.exit_code, 2) << flags;
    EXPECT_TRUE(test::contains(outcome.err, why)) << flags << ": " << outcome.err;
  };
  refused("", "give a part");
  refused("speed", "unknown flag or part speed");
  refused("speed-224 speed-rest", "one part at a time");
  refused("correctness --only", "--only needs a value");
  refused("correctness --device cpu", "has no --device cpu");
  refused("correctness --budget soon", "--budget is a number of seconds, not soon");
  refused("speed-224 --device tpu", "not tpu");
  refused("correctness --data " + path("nothing"), "there is no folder");
  refused("correctness --build " + path("nothing"), "there is no build");
}

TEST_F(GpuCheckTest, EveryPartFitsIntoNineMinutes) {
  const std::map<std::string, std::vector<std::string>> some_checks{
      {"correctness", {"cudnn_plan_test", "op_test", "train_vgg16_groups", "stop_and_resume", "memcheck_op_test"}},
      {"speed-224", {"resnet50", "vgg16_bn", "vit_b_16"}},
      {"speed-rest", {"resnet56", "factored_resnet50", "svd_gram", "svd_torch"}}};
  for (const auto& [part, checks] : some_checks) {
    const test::Outcome all = gpu_check(part + " --dry-run");
    EXPECT_EQ(all.exit_code, 0) << all.err;
    for (const std::string& check : checks)
      EXPECT_TRUE(std::regex_search(all.out, std::regex(fmt::format("\n{} +(not run|skipped) ", check)))) << all.out;
    int seconds = 0;
    const std::regex limit("<= ([0-9]+)");
    for (std::sregex_iterator at(all.out.begin(), all.out.end(), limit), end; at != end; ++at)
      seconds += std::stoi((*at)[1]);
    EXPECT_LE(seconds, 530) << all.out;
  }
  const test::Outcome some = gpu_check("correctness --dry-run --only 'train_*'");
  EXPECT_TRUE(test::contains(some.out, "train_resnet20_dense"));
  EXPECT_FALSE(test::contains(some.out, "op_test")) << some.out;
}

TEST_F(GpuCheckTest, RanksAreNumberedAndTheWorstExitCodeCounts) {
  const test::Outcome outcome = run_command(fmt::format(
      "'{}/bench/run_ranks.sh' 3 sh -c 'echo $RANK of $WORLD_SIZE at $AB_RENDEZVOUS; exit $((RANK * 3 % 5))'",
      AB_SOURCE_DIR));
  EXPECT_EQ(outcome.exit_code, 3);
  for (const int rank : {0, 1, 2}) EXPECT_TRUE(test::contains(outcome.out, fmt::format("{} of 3 at file:///", rank)));
}

TEST_F(GpuCheckTest, TableTellsEveryResultAndFailsWithTheWorst) {
  const test::Outcome good =
      table(60, "check first 5 printf \"note: all is well\\nnote: very well\\n\"; skip second no time");
  EXPECT_EQ(good.exit_code, 0) << good.err;
  EXPECT_TRUE(std::regex_search(
      good.out,
      std::regex("\nfirst +passed +\\d+  all is well\n +very well\nsecond +skipped +-  no time\ntotal +passed ")))
      << good.out;
  EXPECT_EQ(read_file(path("table.txt"), ErrorKind::data), good.out);

  const test::Outcome bad = table(
      60,
      "check bad 5 sh -c \"echo why; false\"; check slow 1 sleep 20; check good 5 true; check none 5 bash -c \"exit 77\"");
  EXPECT_EQ(bad.exit_code, 1) << bad.err;
  EXPECT_TRUE(std::regex_search(bad.out, std::regex("\nbad +FAILED +\\d+  exit code 1, see bad\\.log: why\n")))
      << bad.out;
  EXPECT_TRUE(std::regex_search(bad.out, std::regex("\nslow +FAILED +\\d+  longer than 1 s"))) << bad.out;
  EXPECT_TRUE(std::regex_search(bad.out, std::regex("\ngood +passed +\\d+  \nnone +skipped "))) << bad.out;
}

TEST_F(GpuCheckTest, RowsStandInTheTableBeforeTheNextCheckBegins) {
  const test::Outcome outcome =
      table(60, "check first 5 true; check second 5 grep -q \"^first *passed\" " + path("table.txt"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out;
}

TEST_F(GpuCheckTest, ChecksShareABudget) {
  const test::Outcome outcome = table(1, "check long 9 sleep 20; check late 9 true");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_TRUE(std::regex_search(outcome.out, std::regex("\nlong +FAILED +\\d+  longer than 1 s"))) << outcome.out;
  EXPECT_TRUE(std::regex_search(outcome.out, std::regex("\nlate +FAILED +0  "))) << outcome.out;
}

}  // namespace
}  // namespace ab
