// SPDX-License-Identifier: MIT
#include "apps/report/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "apps/report/terminal.h"
#include "engine/core/say.h"

namespace ab {
namespace {

constexpr std::chrono::milliseconds kBetweenLines{20000};  // where they go to no terminal

/// As many fields as fit; those at the end go first.
std::string joined(const std::vector<std::string>& fields, int width) {
  std::string line(beginning(fields[0], width));
  for (std::size_t i = 1; i < fields.size() && text_width(line) + 2 + text_width(fields[i]) <= width; ++i)
    line += "  " + fields[i];
  return line;
}

}  // namespace

using Clock = std::chrono::steady_clock;

Progress::Progress(int runs)
    : terminal_(isatty(STDERR_FILENO) != 0), runs_(runs), start_(Clock::now()), last_line_(start_) {}

/// By the steps after those that the first line is about, which make graphs and caches.
void Progress::estimate(const StepMetrics& metrics, std::int64_t total_steps) {
  constexpr std::int64_t kSteps = 10;
  if (timed_from_ == 0) timed_from_ = metrics.step, timed_since_ = Clock::now();
  if (metrics.step < timed_from_ + kSteps) return;
  const double step = std::chrono::duration<double>(Clock::now() - timed_since_).count() /
                      static_cast<double>(metrics.step - timed_from_);
  draw("");
  say(stderr, "about {} left for {} runs, at {:.3g} ms a step; low-rank steps take less, validations come on top\n",
      human_seconds(step * static_cast<double>(runs_ * total_steps - metrics.step)), runs_, 1000 * step);
  runs_ = 1;
}

void Progress::step(const StepMetrics& metrics, std::int64_t total_steps) {
  if (runs_ > 1) estimate(metrics, total_steps);
  const auto now = Clock::now();
  if (!terminal_ && now - last_line_ < kBetweenLines) return;
  last_line_ = now;
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const double left =
      elapsed / static_cast<double>(metrics.step - first_step_) * static_cast<double>(total_steps - metrics.step);
  std::vector<std::string> fields{fmt::format("step {}/{}", metrics.step, total_steps),
                                  fmt::format("loss {:.3f}", metrics.loss),
                                  human_seconds(left) + " left",
                                  fmt::format("{:.0f} images/s", metrics.images_per_second),
                                  metrics.phase,
                                  fmt::format("lr {:.4f}", metrics.lr),
                                  fmt::format("rank 0 sent {}", human_bytes(metrics.wire_bytes))};
  if (std::isfinite(metrics.peak_share)) fields.push_back(of_peak(metrics.flops_per_second, metrics.peak_share));
  if (terminal_) draw(joined(fields, terminal_width(STDERR_FILENO) - 1));
  else say(stderr, "{}\n", fmt::join(fields, "  "));
}

void Progress::epoch(const EpochMetrics& metrics) {
  draw("");
  const std::string without = metrics.bad == 0 ? ""
                                               : fmt::format("  {} of {} images; {} could not be read", metrics.samples,
                                                             metrics.samples + metrics.bad, metrics.bad);
  say(stderr, "epoch {}  step {}  validation: loss {:.4f}  top-1 {:.2f} %  top-5 {:.2f} %{}\n", metrics.epoch + 1,
      metrics.step, metrics.val_loss, 100 * metrics.val_top1, 100 * metrics.val_top5, without);
}

void Progress::images(std::int64_t done, std::int64_t total) {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  if (now - last_line_ < (terminal_ ? std::chrono::milliseconds(100) : kBetweenLines)) return;
  last_line_ = now;
  const double a_second = static_cast<double>(done) / std::chrono::duration<double>(now - start_).count();
  const std::vector<std::string> fields{fmt::format("image {}/{}", done, total),
                                        human_seconds(static_cast<double>(total - done) / a_second) + " left",
                                        fmt::format("{:.0f} images/s", a_second)};
  if (terminal_) draw(joined(fields, terminal_width(STDERR_FILENO) - 1));
  else say(stderr, "{}\n", fmt::join(fields, "  "));
}

/// Puts `text` in the place of what is drawn; nothing leaves the cursor where a line begins.
void Progress::draw(const std::string& text) {
  if (text.empty() && drawn_ == 0) return;
  const int width = text_width(text), room = terminal_width(STDERR_FILENO) - 1;
  const auto blanks = static_cast<std::size_t>(std::max(0, std::min(drawn_, room) - width));
  say(stderr, "\r{}{}{}", text, std::string(blanks, ' '), text.empty() ? "\r" : "");
  drawn_ = width;
}

}  // namespace ab
