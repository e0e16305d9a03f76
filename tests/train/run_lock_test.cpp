// SPDX-License-Identifier: MIT
//
// One run per folder: the second is refused with the name of the first, and no crash locks a folder for ever.
#include "engine/io/run_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "engine/core/atomic_file.h"
#include "tests/error_message.h"
#include "tests/folder_test.h"

namespace fs = std::filesystem;
using namespace ab;
using ab::test::contains;
using ab::test::message_of;

namespace {

class RunLockTest : public test::FolderTest {
 protected:
  RunLockTest() {
    for (const char* variable : {"SLURM_JOB_ID", "SLURM_RESTART_COUNT", "PBS_JOBID", "LSB_JOBID"}) ::unsetenv(variable);
  }
  ~RunLockTest() override {
    for (const char* variable : {"SLURM_JOB_ID", "SLURM_RESTART_COUNT", "PBS_JOBID"}) ::unsetenv(variable);
  }
  std::string file() const { return folder_ + "/run.lock"; }
  void leave(const std::string& owner) const { std::ofstream(file()) << owner << "\n"; }
  std::string refusal() const {
    return message_of(ErrorKind::config, [&] { const RunLock lock(folder_); });
  }
  static std::string host() {
    char name[256] = "";
    ::gethostname(name, sizeof name - 1);
    return name;
  }
};

TEST_F(RunLockTest, TheSecondRunIsToldWhoIsTheFirst) {
  ::setenv("SLURM_JOB_ID", "55", 1);
  std::optional<RunLock> first(folder_);
  const std::string owner = fmt::format("host {} process {} job 55", host(), ::getpid());
  EXPECT_EQ(read_file(file(), ErrorKind::data), owner + "\n");
  EXPECT_TRUE(contains(refusal(), folder_ + " is in use by another run (" + owner + ")"));
  EXPECT_EQ(read_file(file(), ErrorKind::data), owner + "\n");
  first.reset();
  EXPECT_FALSE(fs::exists(file()));
  const RunLock second(folder_);
}

TEST_F(RunLockTest, ARunThatWasKilledIsSucceeded) {
  int started[2];
  ASSERT_EQ(::pipe(started), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const RunLock lock(folder_);
    if (::write(started[1], "x", 1) == 1) ::pause();
    ::_exit(1);
  }
  char byte;
  ASSERT_EQ(::read(started[0], &byte, 1), 1);
  EXPECT_TRUE(contains(refusal(), fmt::format("process {}", child)));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(fs::exists(file()));
  const RunLock lock(folder_);
  EXPECT_TRUE(contains(read_file(file(), ErrorKind::data), fmt::format("process {}", ::getpid())));
  ::close(started[0]);
  ::close(started[1]);
}

TEST_F(RunLockTest, AnotherHostIsBelievedToRunForAWhileUnlessItWasThisJob) {
  leave("host elsewhere.example process 1 job 77");
  EXPECT_TRUE(contains(refusal(), "host elsewhere.example process 1 job 77"));
  EXPECT_TRUE(contains(refusal(), "remove " + file()));
  ::setenv("SLURM_JOB_ID", "78", 1);
  EXPECT_TRUE(contains(refusal(), "job 77"));
  ::setenv("SLURM_JOB_ID", "77", 1);
  EXPECT_TRUE(contains(refusal(), "job 77")) << "another step of this job";
  ::setenv("SLURM_RESTART_COUNT", "2", 1);
  { const RunLock requeued(folder_); }
  leave("host elsewhere.example process 1 job 77 restart 2");
  EXPECT_TRUE(contains(refusal(), "process 1 job 77 restart 2"));
  ::setenv("SLURM_RESTART_COUNT", "3", 1);
  { const RunLock requeued(folder_); }
  ::unsetenv("SLURM_JOB_ID");
  ::setenv("PBS_JOBID", "77", 1);
  leave("host elsewhere.example process 1 job 77");
  const RunLock requeued(folder_);  // PBS does not count
}

TEST_F(RunLockTest, AnotherHostThatGivesNoSignOfLifeIsSucceeded) {
  const auto silent_for = [&](std::chrono::seconds silence) {
    leave("host elsewhere.example process 1 job none");
    struct stat now {};
    ASSERT_EQ(::stat(file().c_str(), &now), 0);
    const timespec then{now.st_mtim.tv_sec - silence.count(), 0};
    const timespec times[] = {then, then};
    ASSERT_EQ(::utimensat(AT_FDCWD, file().c_str(), times, 0), 0);
  };
  silent_for(RunLock::kPatience - std::chrono::seconds(20));
  EXPECT_TRUE(contains(refusal(), "last sign of life 58")) << refusal();
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "the look at the clock left a file";
  silent_for(RunLock::kPatience + std::chrono::seconds(20));
  struct stat former {
  }, present{};
  ASSERT_EQ(::stat(file().c_str(), &former), 0);
  const RunLock lock(folder_);
  ASSERT_EQ(::stat(file().c_str(), &present), 0);
  EXPECT_NE(former.st_ino, present.st_ino) << "a former owner that was only frozen would renew and remove it";
  EXPECT_TRUE(contains(read_file(file(), ErrorKind::data), host()));
}

TEST_F(RunLockTest, TheOwnerGivesSignsOfLife) {
  const RunLock lock(folder_, std::chrono::milliseconds(20));
  const timespec long_ago[] = {{0, 0}, {0, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, file().c_str(), long_ago, 0), 0);
  struct stat now {};
  for (int i = 0; i < 500 && now.st_mtim.tv_sec == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_EQ(::stat(file().c_str(), &now), 0);
  }
  EXPECT_GT(now.st_mtim.tv_sec, 0);
}

TEST_F(RunLockTest, AnEmptyOrSpoiledFileIsNobodys) {
  leave("");
  { const RunLock lock(folder_); }
  leave("word");
  { const RunLock lock(folder_); }
}

TEST_F(RunLockTest, AFolderThatIsNotThereIsAnError) {
  fs::remove_all(folder_);
  EXPECT_TRUE(contains(refusal(), "run.lock: No such file or directory"));
}

}  // namespace
