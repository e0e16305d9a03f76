#pragma once
// SPDX-License-Identifier: MIT
//
// A plan as tables for people, and as JSON: summary.json's fields, and "plan" for what only a plan has.

#include <string>

#include "apps/plan/plan.h"

namespace ab {

std::string plan_text(const RunPlan& plan);
/// NaN becomes null. summary_from_json() reads it.
std::string plan_json(const RunPlan& plan);
/// Whether a text is such JSON, of this or an earlier release.
bool is_plan_json(const std::string& text);

}  // namespace ab
