// SPDX-License-Identifier: MIT
#include "engine/core/plan_choice.h"

namespace ab {
namespace {

thread_local PlanChoice choice_of_thread = PlanChoice::heuristic;

}  // namespace

PlanChoice plan_choice() { return choice_of_thread; }
PlanChoiceScope::PlanChoiceScope(PlanChoice choice) : before_(choice_of_thread) { choice_of_thread = choice; }
PlanChoiceScope::~PlanChoiceScope() { choice_of_thread = before_; }

}  // namespace ab
