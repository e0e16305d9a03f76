// SPDX-License-Identifier: MIT
//
// How algorithms are chosen by the clock, with a clock that says what it is told to; and how the way of choosing
// reaches a thread.
#include "engine/backend/plan_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <thread>
#include <vector>

namespace ab {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// A clock with the times of every candidate's runs, in order; the last one goes on for ever.
class FakeClock {
 public:
  explicit FakeClock(std::vector<std::vector<double>> times) : times_(std::move(times)), runs_(times_.size()) {}
  std::size_t choose() {
    return fastest(times_.size(),
                   [this](std::size_t i) { return times_[i][std::min(runs_[i]++, times_[i].size() - 1)]; });
  }
  std::size_t runs(std::size_t i) const { return runs_[i]; }

 private:
  std::vector<std::vector<double>> times_;
  std::vector<std::size_t> runs_;
};

TEST(Fastest, TakesTheShortestTime) { EXPECT_EQ(FakeClock({{3.0}, {1.0}, {2.0}}).choose(), 1u); }

TEST(Fastest, FirstRunsDoNotCount) {
  EXPECT_EQ(FakeClock({{0.1, 3.0}, {50.0, 2.0}}).choose(), 1u);  // one loads code, the other happens to be quick once
}

TEST(Fastest, OneDisturbedRunDoesNotDecide) { EXPECT_EQ(FakeClock({{2.0}, {1.0, 9.0, 1.0, 9.0}}).choose(), 1u); }

TEST(Fastest, EqualTimesKeepTheOrderOfTheLibrary) {
  EXPECT_EQ(FakeClock({{1.0}, {0.99}, {0.995}}).choose(), 0u);
  EXPECT_EQ(FakeClock({{1.0}, {0.99}, {0.97}}).choose(), 2u);
}

TEST(Fastest, WhatCannotRunIsOut) {
  FakeClock clock({{kNever}, {5.0}, {kNever}});
  EXPECT_EQ(clock.choose(), 1u);
  EXPECT_EQ(clock.runs(0), 1u) << "asked again";
  EXPECT_EQ(FakeClock({{kNever}, {kNever}}).choose(), 0u);
}

TEST(Fastest, EachRunsAFewTimesOnly) {
  FakeClock clock({{1.0}, {2.0}});
  clock.choose();
  EXPECT_EQ(clock.runs(0), clock.runs(1));
  EXPECT_LE(clock.runs(0), 5u);
}

TEST(PlanChoiceScope, HoldsForItsThreadAndScope) {
  EXPECT_EQ(plan_choice(), PlanChoice::heuristic);
  const PlanChoiceScope run(PlanChoice::deterministic);
  {
    const PlanChoiceScope step(PlanChoice::timed);
    EXPECT_EQ(plan_choice(), PlanChoice::timed);
    std::thread([] { EXPECT_EQ(plan_choice(), PlanChoice::heuristic); }).join();
  }
  EXPECT_EQ(plan_choice(), PlanChoice::deterministic);
}

}  // namespace
}  // namespace ab
