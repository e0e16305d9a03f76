// SPDX-License-Identifier: MIT
//
// AB-training (arXiv 2405.01067): an ordinary training loop around AbStrategy.

#include <cmath>

#include "ablowrank/groups/ab_strategy.h"
#include "apps/tour/tour.h"
#include "engine/core/threads.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/reduce.h"

namespace ab::tour {
namespace {

/// || now − before || / || before ||, in percent
double change(const Tensor& now, const Tensor& before) {
  const Tensor difference = now.clone();
  axpy(-1.0, before, difference);
  return 100 * std::sqrt(sum_of_squares(difference) / sum_of_squares(before));
}

}  // namespace

void train_ab(Tour& tour, Comm& world) {
  set_compute_threads(1);
  const auto me = static_cast<std::size_t>(world.rank());
  const Flags& flags = tour.flags;
  Guide guide(tour, world, tour.ab);
  Weight& weight = guide.model.weight();
  TrainState& state = guide.state;
  AbOptions options;
  options.schedule = {
      .first_split = flags.warmup, .cycle_steps = kLowRankSteps + kReboundSteps, .full_rank_steps = kReboundSteps};
  options.rank_policy.ratio = static_cast<double>(flags.kept()) / kHidden;
  AbStrategy strategy(guide.model, world, options, LrSchedule{.peak = kRate});
  strategy.start(state);
  guide.say_columns();
  guide.show("as drawn", strategy.phase());

  Tensor a, b;  // as the split left them
  while (state.step < flags.steps()) {
    const std::string phase = strategy.phase();
    guide.train_step(strategy);
    const Transition turn = options.schedule.transition_at(state.step);
    if (turn == Transition::none) guide.note(phase, phase == name_of(Phase::low_rank));
    if (turn == Transition::split) {
      guide.show(state.step == flags.warmup ? fmt::format("{} steps of warm-up", state.step) : "20 steps of rebound",
                 phase);
    } else if (turn == Transition::sync) {
      guide.say("Low rank, 80 steps: each group trains its factor on its own.");
      guide.show("process 0, trained A", phase, 0);
      guide.show("process 2, trained B", phase, 2);
      tour.apart[me] = weight.formed().value().clone();
      world.barrier();
      guide.say(
          fmt::format("Process 0: A changed by {:.0f} %, B by {:.0f} %. W differs by {:.0f} % from process 1's, by "
                      "{:.0f} % from process 2's.",
                      change(weight.a().value.value(), a), change(weight.b().value.value(), b),
                      change(tour.apart[1], tour.apart[0]), change(tour.apart[2], tour.apart[0])));
    }
    strategy.after_step(state);
    if (turn == Transition::split) {
      a = weight.a().value.value().clone(), b = weight.b().value.value().clone();
      guide.say(
          fmt::format("\nSplit at step {}: W = U S V, cut to {} directions. Processes 0, 1 train A = U S, 2, 3 "
                      "train B = S V.",
                      state.step, weight.r()));
      guide.show(fmt::format("cut to r = {}", weight.r()), "split");
    } else if (turn == Transition::sync) {
      guide.say(fmt::format("Rejoin at step {}: W = A V + U B - 1/2 U (U' A + B V') V.", state.step));
      guide.show("rejoined, in all", "sync");
    }
  }
  strategy.finish(state);
  strategy.leave(state);
  guide.say(
      fmt::format("Low rank, {} steps; the end: rejoined once more, and cut to factors of 2 x {} numbers instead "
                  "of {}.",
                  kLastSteps, weight.a().numel(), kHidden * kPixels));
  guide.show("the model", "end");
  show_traffic(world);
}

}  // namespace ab::tour
