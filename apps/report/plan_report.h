#pragma once
// SPDX-License-Identifier: MIT
//
// A plan as tables for people, and as JSON: summary.json's fields, and "plan" for what only a plan has; and the plans of all
// methods beside each other.

#include <string>

#include "apps/plan/method_choice.h"

namespace ab {

std::string plan_text(const RunPlan& plan);
/// That another bucket would delay the run less; empty where it hardly would.
std::string bucket_note(const RunPlan& plan, const BucketPlan& best);
/// NaN becomes null. summary_from_json() reads it.
std::string plan_json(const RunPlan& plan);
/// The methods as a table, and a sentence on which of them is soonest done.
std::string choice_text(const std::vector<MethodPlan>& plans);

}  // namespace ab
