// SPDX-License-Identifier: MIT
//
// apps/packaging/launcher.sh.in before a program whose library the dynamic loader does not find by itself.
#include <fstream>
#include <sstream>

#include "tests/program_test.h"

namespace ab {
namespace {

namespace fs = std::filesystem;

class InstalledLauncherTest : public test::ProgramTest {
 protected:
  InstalledLauncherTest() {
    const fs::path tree = path("a tree");
    place(AB_LAUNCHER, tree / "bin/program");
    place(AB_LAUNCHED_PROGRAM, tree / "libexec/program");
    fs::create_symlink(tree / "bin/program", path("link"));
  }

  static void place(const fs::path& file, const fs::path& as) {
    fs::create_directories(as.parent_path());
    fs::copy_file(file, as);
  }
  void place_library(const std::string& folder) const {
    place(AB_LAUNCHED_LIBRARY, fs::path(path(folder)) / fs::path(AB_LAUNCHED_LIBRARY).filename());
  }

  /// Runs the launcher, through a symbolic link, where only `environment` says where libraries are.
  test::Outcome launch(const std::string& environment, const std::string& arguments) const {
    return run_command(
        fmt::format("env -u LD_LIBRARY_PATH -u CUDA_PATH {} {} {}", environment, path("link"), arguments));
  }
};

TEST_F(InstalledLauncherTest, NamesALibraryThatIsNowhere) {
  const test::Outcome outcome = launch("", "0");
  EXPECT_EQ(outcome.exit_code, 6);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_TRUE(test::contains(outcome.err, fs::path(AB_LAUNCHED_LIBRARY).filename().string()));
  EXPECT_TRUE(test::contains(outcome.err, "LD_LIBRARY_PATH"));
}

TEST_F(InstalledLauncherTest, FindsLibrariesInLdLibraryPath) {
  place_library("mine");
  const test::Outcome outcome = launch("LD_LIBRARY_PATH=" + path("mine"), "0");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

TEST_F(InstalledLauncherTest, FindsLibrariesInAToolkitAndPassesArgumentsAndExitCodesOn) {
  place_library("toolkit of mine/lib64");
  const test::Outcome outcome = launch(fmt::format("CUDA_HOME='{}'", path("toolkit of mine")), "75 'two words' ''");
  EXPECT_EQ(outcome.exit_code, 75) << outcome.err;
  EXPECT_TRUE(outcome.out.ends_with("\n[75][two words][]")) << outcome.out;
  EXPECT_EQ(outcome.err, "");
}

TEST_F(InstalledLauncherTest, FindsLibrariesInPythonPackages) {
  if (run_command("python3 --version").exit_code != 0) GTEST_SKIP() << "there is no python3";
  place_library("packages/nvidia/some/lib");
  const test::Outcome outcome = launch("PYTHONPATH=" + path("packages"), "0");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

TEST_F(InstalledLauncherTest, RunsNoCodeOfTheFolderThatItIsStartedIn) {
  if (run_command("python3 --version").exit_code != 0) GTEST_SKIP() << "there is no python3";
  fs::create_directories(path("here/nvidia"));
  std::ofstream(path("here/nvidia/__init__.py")) << "open('" << path("has_run") << "', 'w')\n";
  run_command(fmt::format("cd {} && {} 0", path("here"), path("link")));
  EXPECT_FALSE(fs::exists(path("has_run")));
}

// No shell stays between the program and signals or mpirun.
TEST_F(InstalledLauncherTest, BecomesTheProgram) {
  place_library("mine");
  const test::Outcome outcome =
      run_command(fmt::format("LD_LIBRARY_PATH={} sh -c 'echo $$; exec {}'", path("mine"), path("link")));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  std::istringstream lines(outcome.out);
  int shell = 0, program = -1;
  lines >> shell >> program;
  EXPECT_EQ(program, shell);
}

}  // namespace
}  // namespace ab
