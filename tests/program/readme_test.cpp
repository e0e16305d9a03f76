// SPDX-License-Identifier: MIT
//
// The README files against the programs: commands run as they stand there, or are planned instead of trained; what the
// tour prints is what its page quotes; figures are what their script draws; files that are named exist.
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "tests/program_test.h"

namespace ab {
namespace {

namespace fs = std::filesystem;

const fs::path kSource = AB_SOURCE_DIR;

/// The README of the project and of every folder at its top.
std::vector<fs::path> pages() {
  std::vector<fs::path> found{kSource / "README.md"};
  for (const char* folder : {"ablowrank", "apps", "bench", "data", "engine", "layers", "tests"})
    if (fs::exists(kSource / folder / "README.md")) found.push_back(kSource / folder / "README.md");
  return found;
}

std::string text_of(const fs::path& file) { return read_file(file.string(), ErrorKind::data); }

/// Lines of the fenced blocks of one language.
std::vector<std::string> lines_in_blocks(const std::string& page, const std::string& language) {
  std::vector<std::string> lines;
  std::istringstream stream(page);
  bool inside = false;
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with("```")) inside = !inside && line == "```" + language;
    else if (inside) lines.push_back(line);
  }
  return lines;
}

/// The commands of a page: without comments, and long ones in one line.
std::vector<std::string> commands_of(const std::string& page) {
  std::vector<std::string> commands;
  std::string command;
  for (std::string line : lines_in_blocks(page, "sh")) {
    line = std::regex_replace(line, std::regex("(^|\\s+)#.*$"), "");
    if (line.ends_with('\\')) {
      command += line.substr(0, line.size() - 1);
    } else {
      command += line;
      if (!command.empty()) commands.push_back(command);
      command.clear();
    }
  }
  return commands;
}

class ReadmeTest : public test::ProgramTest {
 protected:
  /// What the commands of the pages expect to find: a checkout with a build, data, and runs.
  void lay_out() const {
    for (const char* folder : {"apps", "bench", "tests"}) fs::create_directory_symlink(kSource / folder, path(folder));
    for (const char* folder : {"build/apps", "abtrain/bin"}) {
      fs::create_directories(path(folder));
      fs::create_symlink(test::program(), path(folder) + "/abtrain");
    }
    fs::create_symlink(AB_TOUR, path("build/apps/lowrank_tour"));
    std::ofstream(path("my.toml")) << "model = \"mlp\"\n";
    for (const char* out :
         {"runs/first", "runs/small", "runs/resnet18", "runs/quickstart/dense", "runs/quickstart/ab"}) {
      const test::Outcome made = run(tiny_train(out));
      ASSERT_EQ(made.exit_code, 0) << made.err;
    }
  }

  test::Outcome type(const std::string& command) const {
    return run_command(
        fmt::format("cd '{}'; export OMP_NUM_THREADS=1 ABTRAIN_DATA_DIR='{}'; {}", folder_, small_cifar(), command));
  }

  /// Runs a command of a page, or what comes nearest to it in seconds, without a GPU, a cluster or a download.
  void check(std::string command) const {
    SCOPED_TRACE(command);
    static const std::regex training("^.*build[-\\w]*/apps/abtrain train ");
    static const std::regex of_one_launch(" --(resume|out|device) \\S+");
    int expected = 0;
    if (std::regex_search(command, training)) {
      // Its settings are planned instead.
      command = std::regex_replace(command, training, "build/apps/abtrain plan ");
      command = std::regex_replace(command, of_one_launch, "");
    } else if (contains(command, "abtrain reproduce") && contains(command, "--data-dir")) {
      command += " --dry-run";
    } else if (contains(command, "reproduce all")) {
      command += " --ratio 0.25";
    } else if (contains(command, "abtrain eval") && contains(command, " DIR")) {
      expected = 4;  // flags are right, but there are no weights
    } else if (contains(command, "abtrain data ")) {
      expected = 3;  // nor images
    } else if (!command.starts_with("build/apps/") && !command.starts_with("abtrain/bin/") &&
               !command.starts_with("mkdir ")) {
      return check_words(command);
    }
    const test::Outcome outcome = type(command);
    EXPECT_EQ(outcome.exit_code, expected) << command << "\n" << outcome.err;
    EXPECT_FALSE(expected == 0 && outcome.out.empty() && !command.starts_with("mkdir ")) << command;
  }

  /// What takes minutes (building, all tests, benchmarks): its scripts, programs and presets are there.
  void check_words(const std::string& command) const {
    static const std::regex preset("(?:(?:cmake|ctest)[^&;]*? --preset |ABTRAIN_PRESET=)(\\w+)"),
        script("(?:apps|bench|tests)/[\\w/]+\\.(?:sh|py)"), program("build[-\\w]*/((?:apps|bench|tests)/\\w+)"),
        builtin("^(\\w+=\\S+ )*(cmake|ctest|tar|kill|export|python3) .*");
    bool known = std::regex_match(command, builtin);
    const auto each = [&](const std::regex& what, const auto& look) {
      for (std::sregex_iterator i(command.begin(), command.end(), what), end; i != end; ++i) {
        look(*i);
        known = true;
      }
    };
    each(preset, [&](const std::smatch& name) {
      EXPECT_TRUE(contains(text_of(kSource / "CMakePresets.json"), fmt::format("\"name\": \"{}\"", name[1].str())));
    });
    each(script, [&](const std::smatch& name) { EXPECT_TRUE(fs::exists(kSource / name.str())) << name.str(); });
    each(program, [&](const std::smatch& name) {
      const std::string path = std::regex_replace(name[1].str(), std::regex("_tests$"), "");  // a folder of tests
      EXPECT_TRUE(fs::exists(kSource / path) || fs::exists(kSource / (path + ".cpp"))) << name.str();
    });
    EXPECT_TRUE(known) << "this test has no rule for it";
  }

  static bool contains(const std::string& text, const std::string& part) { return test::contains(text, part); }
};

TEST_F(ReadmeTest, CommandsWork) {
  lay_out();
  std::set<std::string> seen;
  for (const fs::path& page : pages())
    for (const std::string& command : commands_of(text_of(page)))
      if (seen.insert(command).second) check(command);
  EXPECT_GT(seen.size(), 20u) << "commands are not found any more";
}

TEST_F(ReadmeTest, LibraryExampleIsTheProgramThatIsTested) {
  const auto without_numbers = [](const std::string& text) {
    return std::regex_replace(text, std::regex("\\d+"), "N");
  };
  std::string example;
  for (const std::string& line : lines_in_blocks(text_of(kSource / "apps/README.md"), "cpp")) example += line + "\n";
  EXPECT_TRUE(without_numbers(text_of(kSource / "tests/consumer/train.cpp")).ends_with(without_numbers(example)));
  EXPECT_GT(example.size(), 500u);
}

/// Whether two words are equal, or numbers that differ by two in the last digit, or by eight where they have a fraction: training
/// rounds otherwise elsewhere.
bool agree(const std::string& printed, const std::string& quoted) {
  if (printed == quoted) return true;
  static const std::regex number("-?\\d+(\\.(\\d+))?([^0-9]?)");
  std::smatch match, other;
  if (!std::regex_match(quoted, match, number) || !std::regex_match(printed, other, number) || match[3] != other[3])
    return false;
  const double unit = std::pow(10.0, -static_cast<double>(match[2].length()));
  return std::abs(std::stod(printed) - std::stod(quoted)) < (unit < 1 ? 8.5 : 2.5) * unit;
}

TEST_F(ReadmeTest, TourPrintsWhatItsPageQuotes) {
  const test::Outcome tour = run_command(std::string(AB_TOUR) + " && " + AB_TOUR + " --method late-cut");
  ASSERT_EQ(tour.exit_code, 0) << tour.err;
  std::string quoted;
  const std::string page = text_of(kSource / "ablowrank/README.md");
  for (const std::string& line : lines_in_blocks(page, "text")) quoted += line + "\n";
  std::istringstream left(tour.out), right(quoted);
  for (std::string a, b;;) {
    const bool more = static_cast<bool>(left >> a), expected = static_cast<bool>(right >> b);
    ASSERT_EQ(more, expected) << "one is longer; it prints\n" << tour.out;
    if (!more) break;
    ASSERT_TRUE(agree(a, b)) << "it prints '" << a << "', the page quotes '" << b << "'; it prints\n" << tour.out;
  }
}

TEST_F(ReadmeTest, NumbersMayDifferLittle) {
  EXPECT_TRUE(agree("1.99", "2.00"));
  EXPECT_TRUE(agree("249", "250"));
  EXPECT_FALSE(agree("1.90", "1.99"));
  EXPECT_FALSE(agree("252", "249"));
  EXPECT_TRUE(agree("1.841,", "1.842,"));
  EXPECT_TRUE(agree("3.66", "3.68"));
  EXPECT_FALSE(agree("1.841,", "1.842"));
  EXPECT_FALSE(agree("split", "Split"));
}

TEST_F(ReadmeTest, FiguresAreWhatTheirScriptDraws) {
  if (run_command("python3 --version").exit_code != 0) GTEST_SKIP() << "there is no python3";
  const test::Outcome drawn =
      run_command(fmt::format("python3 -B '{}/bench/figures/draw.py' '{}'", AB_SOURCE_DIR, folder_));
  ASSERT_EQ(drawn.exit_code, 0) << drawn.err;
  const auto figures_in = [](const fs::path& folder) {
    std::set<std::string> names;
    for (const auto& file : fs::directory_iterator(folder))
      if (file.path().extension() == ".svg") names.insert(file.path().filename().string());
    return names;
  };
  const std::set<std::string> figures = figures_in(folder_);
  EXPECT_FALSE(figures.empty());
  EXPECT_EQ(figures, figures_in(kSource / "bench/figures"));
  for (const std::string& name : figures)
    EXPECT_EQ(text_of(kSource / "bench/figures" / name), text_of(fs::path(folder_) / name))
        << name << ": run bench/figures/draw.py";
}

TEST_F(ReadmeTest, TablesAreWhatTheirScriptsPrint) {
#ifdef AB_SANITIZED
  GTEST_SKIP() << "hundreds of plans, which take minutes in this build and say the same in any";
#endif
  if (run_command("python3 --version").exit_code != 0) GTEST_SKIP() << "there is no python3";
  struct Table {
    const char *page, *command;
    int rows = 9;  // at least
  };
  const fs::path build = fs::path(test::program()).parent_path().parent_path();
  for (const auto& [page, command, least] :
       {Table{"README.md", "bench/rivals_table.py --readme"}, Table{"bench/RESULTS.md", "bench/rivals_table.py"},
        Table{"bench/RESULTS.md", "bench/rivals_table.py --convergence"},
        Table{"bench/RESULTS.md", "bench/network_map.py --config resnet20_dense --network 0.1,4ms --build", 6},
        Table{"bench/RESULTS.md", "bench/published.py --build"}}) {
    const std::string text = text_of(kSource / page);
    const bool plans = std::string_view(command).ends_with("--build");
    const test::Outcome table =
        run_command(fmt::format("python3 -B {}/{} {}", AB_SOURCE_DIR, command, plans ? build.string() : ""));
    ASSERT_EQ(table.exit_code, 0) << table.err;
    std::istringstream lines(table.out);
    int rows = 0;
    for (std::string line; std::getline(lines, line); ++rows)
      EXPECT_TRUE(text.find(line) != std::string::npos) << line << "\nrun " << command;
    EXPECT_GE(rows, least) << command;
  }
}

TEST_F(ReadmeTest, LinksLeadSomewhere) {
  static const std::regex link("\\]\\(([^)#:]+)(#[^)]*)?\\)");
  for (const fs::path& page : pages()) {
    const std::string text = text_of(page);
    for (std::sregex_iterator i(text.begin(), text.end(), link), end; i != end; ++i)
      EXPECT_TRUE(fs::exists(page.parent_path() / (*i)[1].str())) << page << ": " << (*i)[1];
  }
}

TEST_F(ReadmeTest, FilesThatAreNamedExist) {
  static const std::regex file("`((?:ablowrank|apps|bench|data|engine|layers|tests)/[\\w./]*)`");
  for (const fs::path& page : pages()) {
    const std::string text = text_of(page);
    for (std::sregex_iterator i(text.begin(), text.end(), file), end; i != end; ++i)
      EXPECT_TRUE(fs::exists(kSource / (*i)[1].str())) << page << ": " << (*i)[1];
  }
}

/// The quickstart in a checkout whose cmake and programs only tell how they were called.
class QuickstartTest : public ReadmeTest {
 protected:
  QuickstartTest() {
    fs::create_directory_symlink(kSource / "apps", fs::path(folder_) / "apps");
    script("bin/cmake", "echo cmake \"$@\" >> calls");
    script("bin/dpkg-query", "echo install ok installed");
    script("build/apps/abtrain", "echo abtrain \"$@\" >> calls");
  }
  void script(const std::string& name, const std::string& body) const {
    fs::create_directories(fs::path(path(name)).parent_path());
    std::ofstream(path(name)) << "#!/bin/sh\n" << body << "\n";
    fs::permissions(path(name), fs::perms::owner_all);
  }
  /// What it says; what it called goes to `calls`.
  std::string quickstart() const {
    const test::Outcome outcome = call("");
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  }
  test::Outcome call(const std::string& flags, const std::string& environment = "") const {
    std::ofstream(path("calls"));
    return run_command(
        fmt::format("cd '{0}'; env -u ABTRAIN_DATA_DIR {2} PATH='{0}/bin':\"$PATH\" apps/quickstart.sh {1}", folder_,
                    flags, environment));
  }
  std::string calls() const { return text_of(path("calls")); }
};

TEST_F(QuickstartTest, BuildsForTheCpuWithoutADriverAndTrainsThreeMethods) {
  if (fs::exists("/proc/driver/nvidia/version")) GTEST_SKIP() << "there is a driver";
  script("bin/nvidia-smi", "exit 9");
  EXPECT_TRUE(contains(quickstart(), "Building for the CPU, since there is no NVIDIA driver here"));
  EXPECT_TRUE(
      calls().starts_with("cmake --preset default -DAB_WITH_CUDA=OFF\n"
                          "cmake --build --preset default --target abtrain_program lowrank_tour\n"
                          "abtrain train --config apps/configs/quickstart_dense.toml --dataset synthetic "))
      << calls();
  EXPECT_TRUE(contains(calls(), "abtrain compare runs/quickstart/dense runs/quickstart/ab runs/quickstart/late-cut"));
}

TEST_F(QuickstartTest, InFullItTrainsOnCifar10UntilItConverges) {
  const test::Outcome without_images = call("--full");
  EXPECT_EQ(without_images.exit_code, 2);
  EXPECT_TRUE(contains(without_images.err, "--full needs ABTRAIN_DATA_DIR"));
  EXPECT_EQ(call("--full", "ABTRAIN_DATA_DIR=/images").exit_code, 0);
  EXPECT_TRUE(contains(calls(), "abtrain reproduce cifar10_94 --data-dir /images --out runs/cifar10_94")) << calls();
}

TEST_F(QuickstartTest, LeavesTheChoiceToCmakeWhereThereIsADriverOrABuild) {
  script("bin/nvidia-smi", "echo GPU 0");
  EXPECT_FALSE(contains(quickstart(), "for the CPU"));
  EXPECT_TRUE(calls().starts_with("cmake --preset default\n")) << calls();
  script("bin/nvidia-smi", "exit 9");
  std::ofstream(path("build/CMakeCache.txt"));
  EXPECT_TRUE(contains(quickstart(), "with the settings that build/ has"));
  EXPECT_TRUE(calls().starts_with("cmake --preset default\n")) << calls();
}

}  // namespace
}  // namespace ab
