// SPDX-License-Identifier: MIT
//
// A system that refuses memory, threads or folders: whatever the command, one sentence of ours and a documented exit code.
#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "apps/commands/commands.h"
#include "engine/core/say.h"
#include "tests/program_test.h"

namespace ab {
namespace {

using test::contains;
using test::Outcome;
using test::fs::create_directories;

class SystemErrorTest : public test::ProgramTest {
 protected:
  /// One of each command, on a run that was trained. The first one trains, the last one too.
  std::vector<std::string> commands() {
    const std::string of_run = "--model mlp --dataset cifar10 --data-dir " + path("data");
    EXPECT_EQ(run(tiny_train("run")).exit_code, 0);
    std::ofstream(path("resume.toml")) << "model = \"mlp\"\n";
    return {
        tiny_train("new", "--overwrite --ranks 2 --threads 2"),
        "plan --model mlp --dataset cifar10",
        "eval --data-dir " + path("data") + " --model-file " + path("run"),
        "export --model-file " + path("run") + " --out " + path("exported.safetensors"),
        "inspect " + path("run"),
        "compare " + path("run") + " --out " + path("page.html"),
        "reproduce vgg16_cifar10 --scale 0.001 --train-samples 40 --val-samples 16 --batch-size 2 --steps 2 --ranks 2 "
        "--out " +
            path("paper") + " " + of_run};
  }

  /// It succeeded, or says why not as the program does.
  static void expect_our_words(const Outcome& outcome, const std::string& what) {
    constexpr int kDocumented[] = {0, 2, 3, 4, 5, 6};
    EXPECT_TRUE(std::ranges::count(kDocumented, outcome.exit_code) > 0) << what << ": " << outcome.exit_code;
    if (outcome.exit_code != 0) {
      EXPECT_TRUE(contains("\n" + outcome.err, "\nabtrain: ")) << what << ": " << outcome.err;
    }
    for (const char* foreign :
         {"std::", "bad_alloc", "filesystem error", "basic_string", "bug in abtrain", "libgomp", "terminate called"})
      EXPECT_FALSE(contains(outcome.err, foreign)) << what << ": " << outcome.err;
  }
};

#if defined(AB_SANITIZED)
#define AB_SKIP_WITH_SANITIZERS GTEST_SKIP() << "a sanitizer has its own memory and threads"
#else
#define AB_SKIP_WITH_SANITIZERS
#endif

TEST_F(SystemErrorTest, MemoryThatIsRefusedIsSaidByEachCommand) {
  AB_SKIP_WITH_SANITIZERS;
  for (const std::string& command : commands()) {
    int failed = 0;
    for (const char* refusal : {"1 -1", "90 -1", "4000 -1", "700 1"}) {
      const Outcome outcome =
          run(command, fmt::format("timeout 60 env 'REFUSE=new {}' LD_PRELOAD={}", refusal, AB_REFUSING_SYSTEM));
      expect_our_words(outcome, command + ", new " + refusal);
      failed += outcome.exit_code != 0;
    }
    EXPECT_GT(failed, 1) << command;
  }
}

TEST_F(SystemErrorTest, ThreadsThatAreRefusedAreSaidByEachCommand) {
  AB_SKIP_WITH_SANITIZERS;
  const std::vector<std::string> all = commands();
  for (const std::string& command : all)
    for (const int most : {0, 1, 2, 4, 6})
      expect_our_words(run(command, fmt::format("timeout 60 env OMP_NUM_THREADS=3 'REFUSE=threads {} 0' LD_PRELOAD={}",
                                                most, AB_REFUSING_SYSTEM)),
                       fmt::format("{}, threads {}", command, most));
  const Outcome outcome = run(all[0], fmt::format("env 'REFUSE=threads 0 0' LD_PRELOAD={}", AB_REFUSING_SYSTEM));
  EXPECT_EQ(outcome.exit_code, 6) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "raise the limit on processes")) << outcome.err;
  const Outcome plan =
      run(all[1], fmt::format("env OMP_NUM_THREADS=3 'REFUSE=threads 0 0' LD_PRELOAD={}", AB_REFUSING_SYSTEM));
  EXPECT_EQ(plan.exit_code, 0) << "a plan computes nothing: " << plan.err;
}

// A loader whose threads are refused prepares batches where they are asked for.
TEST_F(SystemErrorTest, ARunNeedsNoThreadsOfItsLoader) {
  AB_SKIP_WITH_SANITIZERS;
  ASSERT_EQ(run(tiny_train("whole")).exit_code, 0);
  const Outcome outcome = run(tiny_train("alone"), "env 'REFUSE=threads 2 0' LD_PRELOAD=" AB_REFUSING_SYSTEM);
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(read_file(path("alone/model.safetensors"), ErrorKind::data),
            read_file(path("whole/model.safetensors"), ErrorKind::data));
}

TEST_F(SystemErrorTest, AWorkingFolderThatIsGoneIsNamedByEachCommand) {
  const std::string program = test::program();
  const auto in_removed_folder = [&](const std::string& words) {
    create_directories(path("gone"));
    return run_command(
        fmt::format("cd {} && rmdir {} && OMP_NUM_THREADS=1 {} {}", path("gone"), path("gone"), program, words));
  };
  for (const std::string& command : commands()) {  // whole paths do
    const Outcome outcome = in_removed_folder(command);
    EXPECT_EQ(outcome.exit_code, 0) << command << outcome.err;
  }
  const std::string train = "train --model mlp --dataset cifar10 --batch-size 4 --steps 1 --data-dir " + path("data");
  for (const std::string& command :
       {train, train + " --out there", std::string("train --config my.toml"), std::string("plan --config my.toml"),
        std::string("plan --model mlp --dataset cifar10 --out plan.json"), std::string("eval --model-file run"),
        std::string("export --model-file run"), std::string("inspect run"),
        "export --model-file " + path("run") + " --out there.safetensors", std::string("compare run"),
        "compare " + path("run") + " --out page.html",
        std::string("reproduce vgg16_cifar10 --data-dir ") + path("data")}) {
    const Outcome outcome = in_removed_folder(command);
    expect_our_words(outcome, command);
    EXPECT_NE(outcome.exit_code, 0) << command;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
  const Outcome refused = in_removed_folder(train + " --out there");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(contains(refused.err, "the working folder has been removed: change to one that is there")) << refused.err;
}

TEST_F(SystemErrorTest, ALinkToNowhereIsNamed) {
  const std::string link = path("link");
  test::fs::create_symlink("nowhere", link);
  const std::string reason = fmt::format("{} is a link to nowhere, which is not there", link);
  expect_failure(tiny_train("link"), 2, reason);
  expect_failure(tiny_train("link/run"), 2, reason);
  expect_failure(tiny_train("link", "--resume auto"), 2, reason);
  expect_failure("reproduce vgg16_cifar10 --data-dir " + path("data") + " --out " + link, 2, reason);
  expect_failure("train --config " + link, 2, reason);
  expect_failure("plan --factors-from " + link, 3, reason);
  EXPECT_TRUE(test::fs::is_symlink(link));
}

TEST_F(SystemErrorTest, AFolderInAFileIsExitTwoForARunThatMayGoOn) {
  std::ofstream(path("file")) << "words";
  expect_failure(tiny_train("file/run", "--resume auto"), 2, "file is not a folder");
  expect_failure("reproduce vgg16_cifar10 --data-dir " + path("data") + " --out " + path("file"), 2,
                 "file is not a folder");
}

TEST(OurWords, OfAJsonFileThatIsDamagedEndInTheCodeOfData) {
  try {
    [[maybe_unused]] const auto json = nlohmann::json::parse("{");
    ADD_FAILURE() << "it was parsed";
  } catch (const std::exception& error) {
    EXPECT_EQ(report_error(error), static_cast<int>(ErrorKind::data));
  }
}

TEST(OurWords, HaveAKindAndSayWhatToDo) {
  const auto words = [](const std::exception& error) { return std::string(in_our_words(error).what()); };
  EXPECT_EQ(in_our_words(Error(ErrorKind::data, "of ours")).kind(), ErrorKind::data);
  EXPECT_EQ(words(Error(ErrorKind::data, "of ours")), "of ours");
  EXPECT_TRUE(contains(words(std::bad_alloc()), "refuses more memory; lower --batch-size"));
  EXPECT_TRUE(contains(words(std::length_error("vector::reserve")), "refuses more memory"));
  EXPECT_TRUE(contains(words(std::system_error(EAGAIN, std::generic_category())), "refuses another thread"));
  EXPECT_TRUE(
      contains(words(std::system_error(EMFILE, std::generic_category())), "Too many open files; see its limits"));
  const test::fs::filesystem_error files("cannot", "/some/where", std::make_error_code(std::errc::permission_denied));
  EXPECT_EQ(in_our_words(files).kind(), ErrorKind::config);
  EXPECT_EQ(words(files), "'/some/where' cannot be used: Permission denied; give another path");
  EXPECT_TRUE(contains(words(std::out_of_range("map::at")), "bug in abtrain: map::at; please report it"));
}

}  // namespace
}  // namespace ab
