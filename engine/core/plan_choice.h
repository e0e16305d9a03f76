#pragma once
// SPDX-License-Identifier: MIT
//
// Which algorithm to take of those that a GPU's libraries offer for a convolution, matrix product or attention. They differ in
// speed and rounding, and a few do not even repeat their own results: they add up in the order in which blocks finish.

namespace ab {

enum class PlanChoice {
  heuristic,      ///< the first that the library proposes; one that does not repeat only where no other is
  timed,          ///< the fastest of the first few, measured on the device at first use
  deterministic,  ///< the first that repeats bit for bit; an error where there is none
};

/// For this thread (default: heuristic).
PlanChoice plan_choice();

/// Sets it for a scope. `timed` is for forward and backward passes alone: ranks may come to different choices, and
/// decompositions and joins, which every rank computes for itself, must come out the same on all.
class PlanChoiceScope {
 public:
  explicit PlanChoiceScope(PlanChoice choice);
  ~PlanChoiceScope();
  PlanChoiceScope(const PlanChoiceScope&) = delete;
  PlanChoiceScope& operator=(const PlanChoiceScope&) = delete;

 private:
  PlanChoice before_;
};

}  // namespace ab
