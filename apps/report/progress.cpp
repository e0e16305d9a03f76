// SPDX-License-Identifier: MIT
#include "apps/report/progress.h"

#include <unistd.h>

#include "apps/report/terminal.h"
#include "engine/core/say.h"

namespace ab {

using Clock = std::chrono::steady_clock;

Progress::Progress() : terminal_(isatty(STDERR_FILENO) != 0), start_(Clock::now()), last_line_(start_) {}

void Progress::step(const StepMetrics& metrics, std::int64_t total_steps) {
  constexpr auto kBetweenLines = std::chrono::seconds(20);
  const auto now = Clock::now();
  if (!terminal_ && now - last_line_ < kBetweenLines) return;
  last_line_ = now;
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const double left =
      elapsed / static_cast<double>(metrics.step - first_step_) * static_cast<double>(total_steps - metrics.step);
  clear_line();
  say(stderr, "step {}/{}  {}  loss {:.3f}  lr {:.4f}  {:.0f} images/s  rank 0 sent {}  {} left{}", metrics.step,
      total_steps, metrics.phase, metrics.loss, metrics.lr, metrics.images_per_second, human_bytes(metrics.wire_bytes),
      human_seconds(left), terminal_ ? "" : "\n");
  line_open_ = terminal_;
}

void Progress::epoch(const EpochMetrics& metrics) {
  clear_line();
  say(stderr, "epoch {}  step {}  validation: loss {:.4f}  top-1 {:.2f} %  top-5 {:.2f} %\n", metrics.epoch + 1,
      metrics.step, metrics.val_loss, 100 * metrics.val_top1, 100 * metrics.val_top5);
}

void Progress::clear_line() {
  if (line_open_) say_text(stderr, "\r\033[K");
  line_open_ = false;
}

}  // namespace ab
