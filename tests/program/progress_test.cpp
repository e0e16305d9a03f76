// SPDX-License-Identifier: MIT
//
// The line that a terminal shows while a run goes on: one line at any width.
#include "apps/report/progress.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <sstream>
#include <thread>
#include <vector>

#include "apps/report/terminal.h"
#include "tests/program_test.h"

namespace ab {
namespace {

using Lines = std::vector<std::string>;

/// A pseudo-terminal, which somebody reads all the time.
class Pty {
 public:
  explicit Pty(int columns) {
    EXPECT_EQ(::openpty(&master_, &slave_, nullptr, nullptr, nullptr), 0);
    resize(columns);
  }
  ~Pty() { ::close(master_), ::close(slave_); }
  Pty(const Pty&) = delete;
  Pty& operator=(const Pty&) = delete;

  int slave() const { return slave_; }
  void resize(int columns) {
    winsize size{};
    size.ws_row = 24, size.ws_col = static_cast<unsigned short>(columns);
    EXPECT_EQ(::ioctl(slave_, TIOCSWINSZ, &size), 0);
  }
  /// All that `work` writes there.
  template <class Work> std::string read_while(Work&& work) const {
    std::atomic<bool> done = false;
    std::string text;
    std::thread reader([&] {
      pollfd waiting{master_, POLLIN, 0};
      for (bool last = false; !last;) {
        last = done;
        char block[4096];
        while (::poll(&waiting, 1, last ? 0 : 10) > 0)
          if (const ssize_t count = ::read(master_, block, sizeof block); count > 0)
            text.append(block, static_cast<std::size_t>(count));
      }
    });
    work();
    done = true;
    reader.join();
    return text;
  }

 private:
  int master_ = -1, slave_ = -1;
};

/// The lines that a terminal of `columns` shows in the end. It goes on in the next line where one is full, and obeys carriage
/// returns and line feeds and nothing else.
Lines lines_shown(const std::string& text, std::size_t columns) {
  std::vector<Lines> lines(1);
  std::size_t at = 0;
  for (std::size_t i = 0, bytes = 1; i < text.size(); i += bytes, bytes = 1) {
    while (i + bytes < text.size() && (static_cast<unsigned char>(text[i + bytes]) & 0xc0) == 0x80) ++bytes;
    if (text[i] == '\r') {
      at = 0;
    } else if (text[i] == '\n') {
      lines.emplace_back(), at = 0;
    } else {
      if (at == columns) lines.emplace_back(), at = 0;
      if (lines.back().size() <= at) lines.back().resize(at + 1, " ");
      lines.back()[at++] = text.substr(i, bytes);
    }
  }
  Lines shown;
  for (const Lines& cells : lines) {
    std::string line;
    for (const std::string& cell : cells) line += cell;
    shown.push_back(line.substr(0, line.find_last_not_of(' ') + 1));
  }
  return shown;
}

/// stderr goes to the terminal while it lives.
class OnStderr {
 public:
  explicit OnStderr(const Pty& pty) : before_(::dup(STDERR_FILENO)) { ::dup2(pty.slave(), STDERR_FILENO); }
  ~OnStderr() { ::dup2(before_, STDERR_FILENO), ::close(before_); }

 private:
  int before_;
};

StepMetrics metrics_of(std::int64_t step) { return {step, 0, "compressed", 2.3456, 0.1, 12345, 1.5e9 / step}; }

std::string steps_drawn(const Pty& pty, std::int64_t steps) {
  return pty.read_while([&] {
    const OnStderr on_stderr(pty);
    Progress progress;
    for (std::int64_t step = 1; step <= steps; ++step) progress.step(metrics_of(step), 123456);
    progress.epoch({0, steps, 1.5, 0.25, 0.5});
    progress.step(metrics_of(steps + 1), 123456);
  });
}

TEST(Progress, IsOneLineAtAnyWidth) {
  for (const int columns : {200, 100, 80, 60, 40, 20, 12, 2, 1}) {
    Pty pty(columns);
    const std::string written = steps_drawn(pty, 50);
    EXPECT_EQ(written.find('\x1b'), std::string::npos);
    const std::string epoch = "epoch 1  step 50  validation: loss 1.5000  top-1 25.00 %  top-5 50.00 %";
    const Lines lines = lines_shown(written, static_cast<std::size_t>(columns));
    const auto of_epoch = (epoch.size() + static_cast<std::size_t>(columns) - 1) / static_cast<std::size_t>(columns);
    EXPECT_EQ(lines.size(), of_epoch + 1) << columns << "\n" << written;
    EXPECT_EQ(lines.back(), "") << "cleared when the run is over";
  }
}

TEST(Progress, LosesItsLeastFieldsFirst) {
  const auto drawn = [](int columns, const StepMetrics& metrics = metrics_of(7)) {
    Pty pty(columns);
    const std::string written = pty.read_while([&] {
      const OnStderr on_stderr(pty);
      Progress progress;
      progress.step(metrics, 100);
    });
    return lines_shown(written.substr(0, written.rfind("\r", written.size() - 2)), 1000).back();
  };
  EXPECT_TRUE(test::contains(drawn(120),
                             "step 7/100  loss 2.346  0.0 s left  12345 images/s  compressed  lr 0.1000  rank 0 sent"));
  StepMetrics fast = metrics_of(7);
  fast.flops_per_second = 1.364e11, fast.peak_share = 0.62;
  EXPECT_TRUE(drawn(140, fast).ends_with("  62 % of 220 GFLOP/s")) << drawn(140, fast);
  EXPECT_EQ(drawn(80), "step 7/100  loss 2.346  0.0 s left  12345 images/s  compressed  lr 0.1000");
  EXPECT_EQ(drawn(40), "step 7/100  loss 2.346  0.0 s left");
  EXPECT_EQ(drawn(36), "step 7/100  loss 2.346  0.0 s left") << "and one column that stays free";
  EXPECT_EQ(drawn(34), "step 7/100  loss 2.346");
  EXPECT_EQ(drawn(8), "step 7/");
}

TEST(Progress, FollowsTheWidthOfItsTerminal) {
  Pty pty(100);
  const std::string written = pty.read_while([&] {
    const OnStderr on_stderr(pty);
    Progress progress;
    progress.step(metrics_of(7), 100);
    pty.resize(30);
    for (int i = 0; i < 20; ++i) progress.step(metrics_of(8), 100);
    pty.resize(60);
    progress.step(metrics_of(9), 100);
  });
  const std::string narrow = written.substr(written.find("\rstep 8"));
  EXPECT_EQ(lines_shown(narrow.substr(0, narrow.find("step 9")), 30).size(), 1u) << narrow;
  EXPECT_TRUE(test::contains(narrow, "step 9/100  loss 2.346  ")) << narrow;
  EXPECT_TRUE(test::contains(narrow, " s left  12345 images/s")) << narrow;
}

TEST(Terminal, WideCharactersTakeTwoColumnsAndAccentsNone) {
  EXPECT_EQ(text_width("äé…×"), 4);
  EXPECT_EQ(text_width("模型"), 4);
  EXPECT_EQ(text_width("한글"), 4);
  EXPECT_EQ(text_width("🚀"), 2);
  EXPECT_EQ(text_width("e\u0301"), 1);
  EXPECT_EQ(text_width("\xff"), 1) << "what is no UTF-8 still takes a column";
  EXPECT_EQ(shorten("模型模型模型", 7), "模…型");
  EXPECT_EQ(shorten("模型a模型a模型", 8), "模…模型");
  EXPECT_EQ(beginning("模型", 3), "模");
  TextTable table({"run", "x"});
  table.add({"模型", "1"});
  table.add({"abcde", "2"});
  EXPECT_EQ(table.str(), "run    x\n─────  ─\n模型   1\nabcde  2\n");
}

class ProgressOfTheProgram : public test::ProgramTest {};

TEST_F(ProgressOfTheProgram, NeitherScrollsNorSendsEscapes) {
  for (const char* term : {"dumb", "xterm"}) {
    Pty pty(80);
    int status = -1;
    const std::string command =
        fmt::format("env TERM={} {} {} --threads 1 >{} 2>{} </dev/null", term, test::program(),
                    tiny_train("o", "--steps 30 --overwrite"), path("stdout"), ::ttyname(pty.slave()));
    const std::string written = pty.read_while(
        [&] { status = std::system(command.substr(0).replace(command.find("--steps 4 "), 10, "").c_str()); });
    EXPECT_EQ(status, 0) << written;
    EXPECT_EQ(written.find('\x1b'), std::string::npos) << written;
    EXPECT_TRUE(test::contains(written, "step 30/30"));
    Lines lines = lines_shown(written, 80);
    std::erase_if(lines, [](const std::string& line) { return line.starts_with("warning: OpenBLAS"); });
    ASSERT_LE(lines.size(), 8u) << written;
    for (std::size_t i = 0; i + 1 < lines.size(); ++i) EXPECT_TRUE(lines[i].starts_with("epoch ")) << lines[i];
    EXPECT_EQ(lines.back(), "");
  }
}

TEST_F(ProgressOfTheProgram, HelpFitsNarrowTerminals) {
  Pty pty(44);
  const std::string command = fmt::format("{} compare --help >{} </dev/null", test::program(), ::ttyname(pty.slave()));
  const std::string written = pty.read_while([&] { EXPECT_EQ(std::system(command.c_str()), 0); });
  std::istringstream lines(written.substr(written.find("Options:")));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(text_width(line), 45) << line;  // with a carriage return
}

}  // namespace
}  // namespace ab
