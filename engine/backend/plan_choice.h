#pragma once
// SPDX-License-Identifier: MIT
//
// Which algorithm to take of those that a GPU's libraries offer for a convolution, matrix product or attention. They differ in
// speed and rounding, and a few do not even repeat their own results: they add up in the order in which blocks finish.

#include <cstddef>
#include <functional>

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

/// The fastest of `count` candidates, given in order of expectation. `milliseconds(i)` runs candidate i once and says
/// how long it took: infinity when it cannot run here. Each runs once to warm up, as first calls load code, and then
/// a few times, of which the shortest counts. A later candidate is taken only when it is faster by more than times
/// scatter, so that equal ones are not chosen at random. 0 when none can run.
std::size_t fastest(std::size_t count, const std::function<double(std::size_t)>& milliseconds);

}  // namespace ab
