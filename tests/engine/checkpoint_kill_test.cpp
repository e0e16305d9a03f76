// SPDX-License-Identifier: MIT
//
// A job that dies at any moment of saving loses nothing that it had saved: killed 200 times, it goes on from
// a whole checkpoint each time. What a power cut may undo shows in the order of the system calls.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "engine/io/checkpoint.h"
#include "engine/io/checkpoint_folder.h"
#include "tests/checkpoint_state.h"
#include "tests/error_message.h"
#include "tests/folder_test.h"

namespace fs = std::filesystem;
using namespace ab;
using ab::test::same_bits;
using ab::test::state_of;

namespace {

constexpr int kRanks = 2, kKeep = 2;

using CheckpointKillTest = test::FolderTest;

void save_on_ranks(const std::string& folder, std::int64_t step) {
  run_thread_ranks(kRanks, {},
                   [&](Comm& world) { save_checkpoint(folder, step, state_of(world.rank(), step), kKeep, world); });
}

/// The step of the newest checkpoint, which must hold what every rank had at that step; 0 when there is none.
std::int64_t newest_step(const std::string& folder) {
  std::int64_t step = 0;
  run_thread_ranks(kRanks, {}, [&](Comm& world) {
    const auto found = load_newest_checkpoint(folder, world);
    if (!found) return;
    EXPECT_TRUE(same_bits(state_of(world.rank(), found->step), found->state));
    EXPECT_EQ(found->state.integer("step"), found->step);
    if (world.rank() == 0) step = found->step;
  });
  return step;
}

/// The process that is killed: it saves one step after another, each twice, as a run that was set back would,
/// and reports what is saved.
[[noreturn]] void save_for_ever(const std::string& folder, std::int64_t step, int report) {
  for (int saves = 0;; ++saves) {
    step += saves % 2 == 0;
    save_on_ranks(folder, step);
    if (::write(report, &step, sizeof step) != sizeof step) ::_exit(1);
  }
}

bool has_leftovers(const std::string& folder) {
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().filename().string().starts_with(".")) return true;
  return false;
}

TEST_F(CheckpointKillTest, AJobKilledWhileSavingGoesOnFromAWholeCheckpoint) {
  constexpr int kKills = 200;
  const Philox random{5, 0};
  std::int64_t step = 1;
  int killed_while_saving = 0;
  save_on_ranks(folder_, step);
  for (std::uint64_t kill = 0; kill < kKills; ++kill) {
    int report[2];
    ASSERT_EQ(::pipe2(report, O_NONBLOCK), 0);
    const pid_t job = ::fork();
    ASSERT_GE(job, 0);
    if (job == 0) save_for_ever(folder_, step, report[1]);
    std::this_thread::sleep_for(std::chrono::microseconds(random.below(kill, 40'000)));
    ::kill(job, SIGKILL);
    int status = 0;
    ::waitpid(job, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "it ended by itself with status " << status;

    std::int64_t reported = step;
    while (::read(report[0], &reported, sizeof reported) == sizeof reported) continue;
    ::close(report[0]);
    ::close(report[1]);
    killed_while_saving += has_leftovers(folder_);
    step = newest_step(folder_);
    ASSERT_GE(step, reported) << "a saved checkpoint is lost after kill " << kill;
  }
  EXPECT_GT(killed_while_saving, 0);
  save_on_ranks(folder_, step + 1);
  EXPECT_FALSE(has_leftovers(folder_));
  EXPECT_EQ(checkpoints_in(folder_).size(), static_cast<std::size_t>(kKeep));
}

/// Lines of a trace of system calls, searched in their order.
class Trace {
 public:
  explicit Trace(const std::string& file) {
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) lines_.push_back(line);
  }
  bool empty() const { return lines_.empty(); }

  /// The first line from `begin` on with all `parts` in their order; its number, or a failure and the end.
  std::size_t find(std::size_t begin, const std::vector<std::string>& parts) const {
    for (std::size_t i = begin; i < lines_.size(); ++i) {
      std::size_t at = 0;
      for (const std::string& part : parts)
        if (at != std::string::npos && (at = lines_[i].find(part, at)) != std::string::npos) at += part.size();
      if (at != std::string::npos) return i;
    }
    ADD_FAILURE() << "the trace lacks, from line " << begin << " on: " << fmt::format("{}", fmt::join(parts, " … "));
    return lines_.size();
  }

 private:
  std::vector<std::string> lines_;
};

constexpr const char* kFolderVariable = "ABTRAIN_TEST_CHECKPOINTS";

// Run by the test below, under strace.
TEST_F(CheckpointKillTest, DISABLED_SavesThreeSteps) {
  const char* folder = std::getenv(kFolderVariable);
  ASSERT_NE(folder, nullptr);
  for (const std::int64_t step : {1, 2, 3}) save_on_ranks(folder, step);
}

TEST_F(CheckpointKillTest, EverythingIsOnDiskBeforeItIsRenamed) {
  fs::create_directories(folder_);
  const std::string trace_file = folder_ + "/trace", folder = folder_ + "/checkpoints";
  const std::string self = fs::read_symlink("/proc/self/exe");
  const std::string command = fmt::format(
      "{}={} strace -f -y -qq -s 4096 -e trace=fsync,rename,renameat,renameat2 -o {} {} "
      "--gtest_also_run_disabled_tests --gtest_filter=CheckpointKillTest.DISABLED_SavesThreeSteps >{}/log "
      "2>&1",
      kFolderVariable, folder, trace_file, self, folder_);
  const int status = std::system(command.c_str());
  const Trace trace(fs::exists(trace_file) ? trace_file : "/dev/null");
  if (trace.empty()) GTEST_SKIP() << "strace is not installed or not permitted here";
  ASSERT_EQ(status, 0);

  const std::string saving = ".saving_step_000000000003.", published = folder + "/step_000000000003";
  std::size_t all_written = 0;
  for (const std::string file : {"/rank_00000.safetensors", "/rank_00001.safetensors", "/manifest.json"}) {
    const std::size_t synced = trace.find(0, {"fsync(", saving, file, ">"});
    const std::size_t renamed = trace.find(synced + 1, {"rename", saving, file, ".tmp\"", saving, file + "\""});
    all_written = std::max(all_written, renamed);
  }
  const std::size_t folder_synced = trace.find(all_written + 1, {"fsync(", saving, ">"});
  const std::size_t renamed = trace.find(folder_synced + 1, {"rename", saving, "\"" + published + "\""});
  const std::size_t parent_synced = trace.find(renamed + 1, {"fsync(", "<" + folder + ">"});
  trace.find(parent_synced + 1, {"rename", "/step_000000000001\"", ".removing_step_000000000001\""});
  EXPECT_EQ(trace.find(0, {"rename", "\"" + published + "\""}), renamed);
}

}  // namespace
