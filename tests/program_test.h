#pragma once
// SPDX-License-Identifier: MIT
//
// Tests that start the program: a folder of their own, a tiny data set, and what a run prints and returns.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>

#include "engine/core/atomic_file.h"
#include "engine/core/random.h"
#include "tests/error_message.h"
#include "tests/folder_test.h"

namespace ab::test {

namespace fs = std::filesystem;

/// The program under test: of the build, or of an installed tree, which says where it is (bench/gpu_check.sh).
inline std::string program() {
  const char* installed = std::getenv("ABTRAIN_PROGRAM");
  return installed ? installed : AB_PROGRAM;
}

struct Outcome {
  int exit_code = -1;
  std::string out, err;
};

class ProgramTest : public FolderTest {
 protected:
  /// Runs the program with `arguments`, words separated by blanks as in a shell; `launcher` comes before it. That OpenBLAS does
  /// not know the processor of this machine is left out of what it says.
  Outcome run(const std::string& arguments, const std::string& launcher = "") const {
    Outcome outcome =
        run_command(fmt::format("env -u ABTRAIN_DATA_DIR OMP_NUM_THREADS=1 {} {} {}", launcher, program(), arguments));
    if (outcome.err.starts_with("warning: OpenBLAS")) outcome.err.erase(0, outcome.err.find('\n') + 1);
    return outcome;
  }

  /// Runs a line of the shell.
  Outcome run_command(const std::string& command) const {
    const int status =
        std::system(fmt::format("{{ {}; }} >{} 2>{} </dev/null", command, path("stdout"), path("stderr")).c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(path("stdout"), ErrorKind::data),
            read_file(path("stderr"), ErrorKind::data)};
  }

  /// A run that fails with `exit_code` and says `expected` in its one line.
  void expect_failure(const std::string& arguments, int exit_code, const std::string& expected) const {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, exit_code) << arguments << "\n" << outcome.err;
    EXPECT_TRUE(outcome.err.starts_with("abtrain: ")) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_TRUE(contains(outcome.err, expected)) << arguments;
  }

  /// A tiny data set in CIFAR-10's format: 5 · 8 training and 16 test images.
  std::string small_cifar() const {
    const std::string folder = path("data");
    fs::create_directories(folder);
    const Philox random{1, 2};
    std::uint64_t index = 0;
    for (const char* name :
         {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"}) {
      std::string records;
      for (int i = 0; i < (std::string(name) == "test_batch" ? 16 : 8); ++i) {
        records += static_cast<char>(random.below(index++, 10));
        for (int b = 0; b < 3072; b += 4) {
          const std::uint32_t bits = random.bits(index++);
          records.append(reinterpret_cast<const char*>(&bits), 4);
        }
      }
      write_file_atomically(fmt::format("{}/{}.bin", folder, name), records);
    }
    return folder;
  }

  /// Flags of a run of an instant: 4 steps of a small network.
  std::string tiny_train(const std::string& out, const std::string& more = "") const {
    return fmt::format(
        "train --model mlp --dataset cifar10 --data-dir {} --batch-size 4 --steps 4 --lr 0.01 "
        "--log-every 1 --out {} {}",
        small_cifar(), path(out), more);
  }
};

}  // namespace ab::test
