// SPDX-License-Identifier: MIT
#include "engine/backend/plan_choice.h"

#include <algorithm>
#include <limits>

namespace ab {
namespace {

thread_local PlanChoice choice_of_thread = PlanChoice::heuristic;

}  // namespace

PlanChoice plan_choice() { return choice_of_thread; }
PlanChoiceScope::PlanChoiceScope(PlanChoice choice) : before_(choice_of_thread) { choice_of_thread = choice; }
PlanChoiceScope::~PlanChoiceScope() { choice_of_thread = before_; }

std::size_t fastest(std::size_t count, const std::function<double(std::size_t)>& milliseconds) {
  constexpr int kRepetitions = 3;
  constexpr double kScatter = 0.02;
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::size_t best = 0;
  double best_time = kNever;
  for (std::size_t i = 0; i < count; ++i) {
    if (milliseconds(i) == kNever) continue;
    double time = kNever;
    for (int repetition = 0; repetition < kRepetitions; ++repetition) time = std::min(time, milliseconds(i));
    if (time >= best_time * (1 - kScatter)) continue;
    best = i;
    best_time = time;
  }
  return best;
}

}  // namespace ab
