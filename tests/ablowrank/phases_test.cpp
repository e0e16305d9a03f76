// SPDX-License-Identifier: MIT
//
// The timetable of AB-training, its groups and its rank policies: pure functions.
#include <gtest/gtest.h>

#include <map>

#include "ablowrank/factorise.h"
#include "ablowrank/groups/groups.h"
#include "ablowrank/groups/phases.h"
#include "engine/core/check.h"

namespace ab {
namespace {

std::map<std::int64_t, Transition> transitions(const PhaseSchedule& schedule, std::int64_t steps) {
  std::map<std::int64_t, Transition> found;
  for (std::int64_t t = 1; t <= steps; ++t)
    if (schedule.transition_at(t) != Transition::none) found[t] = schedule.transition_at(t);
  return found;
}

PhaseSchedule release(std::int64_t w, std::int64_t s, std::int64_t d, std::int64_t r) {
  return {w, s, d, r, /*cut_at_warmup=*/false, /*release_order=*/true};
}

TEST(ReleaseSchedule, Cifar10Vgg16) {
  const auto found = transitions(release(4330, 759, 60, 267), 15000);
  std::map<std::int64_t, Transition> expected{{4330, Transition::split_uncut}};
  for (std::int64_t t : {4554, 5313, 6072, 6831, 7590, 8349, 9108, 9867, 10626, 11385, 12144, 12903, 13662, 14421}) {
    expected[t] = Transition::sync;
    expected[t + 60] = Transition::split;
  }
  EXPECT_EQ(found, expected);
  EXPECT_EQ(release(4330, 759, 60, 267).phase_at(14999), Phase::low_rank);
}

TEST(ReleaseSchedule, ResNet50With2kRestartsTheReboundOnce) {
  const auto found = transitions(release(24000, 6000, 300, 600), 37000);
  const std::map<std::int64_t, Transition> expected{
      {24000, Transition::split_uncut}, {24300, Transition::restart_rebound},
      {30000, Transition::sync},        {30300, Transition::split},
      {36000, Transition::sync},        {36300, Transition::split}};
  EXPECT_EQ(found, expected);
}

TEST(ReleaseSchedule, ResNet50With64kRestartsTheReboundOnce) {
  const auto found = transitions(release(581, 94, 19, 47), 700);
  const std::map<std::int64_t, Transition> expected{{581, Transition::split_uncut},
                                                    {583, Transition::restart_rebound},
                                                    {658, Transition::sync},
                                                    {677, Transition::split}};
  EXPECT_EQ(found, expected);
}

// Shares of low-rank steps of the shipped configurations, worked out from their transition rules.
TEST(ReleaseSchedule, ShareOfLowRankSteps) {
  const auto share = [](const PhaseSchedule& schedule, std::int64_t steps) {
    std::int64_t low_rank = 0;
    for (std::int64_t t = 0; t < steps; ++t) low_rank += schedule.phase_at(t) == Phase::low_rank;
    return static_cast<double>(low_rank) / static_cast<double>(steps);
  };
  EXPECT_NEAR(share(release(4330, 759, 60, 267), 15000), 0.655, 5e-4);
  EXPECT_NEAR(share(release(24000, 6000, 300, 600), 90000), 0.700, 5e-4);
  EXPECT_NEAR(share(release(9300, 3000, 300, 750), 45000), 0.720, 5e-4);
  EXPECT_NEAR(share(release(6150, 1500, 150, 325), 22500), 0.660, 5e-4);
}

TEST(PhaseSchedule, CyclesFollowTheWarmup) {
  const PhaseSchedule schedule{400, 100, 20, 10, true, false};
  const auto found = transitions(schedule, 650);
  const std::map<std::int64_t, Transition> expected{{400, Transition::split},
                                                    {480, Transition::sync},
                                                    {500, Transition::split},
                                                    {580, Transition::sync},
                                                    {600, Transition::split}};
  EXPECT_EQ(found, expected);
}

// Replays the transitions as a state machine and compares with the pure functions at every step.
TEST(PhaseSchedule, PhaseAgreesWithTheTransitionsBehindIt) {
  for (bool release_order : {false, true})
    for (const auto& [w, s, d] : {std::tuple{0, 5, 1}, {3, 7, 2}, {14, 7, 6}, {20, 6, 3}, {1, 2, 1}}) {
      const PhaseSchedule schedule{w, s, d, 3, true, release_order};
      Phase phase = Phase::warmup;
      std::int64_t last = -1;
      for (std::int64_t t = 0; t < 100; ++t) {
        switch (schedule.transition_at(t)) {
          case Transition::split:
          case Transition::split_uncut:
            ASSERT_NE(phase, Phase::low_rank);
            phase = Phase::low_rank;
            break;
          case Transition::sync:
            ASSERT_EQ(phase, Phase::low_rank);
            phase = Phase::rebound;
            break;
          default: break;
        }
        if (schedule.transition_at(t) != Transition::none) last = t;
        ASSERT_EQ(schedule.phase_at(t), phase) << "W " << w << " S " << s << " D " << d << " t " << t;
        ASSERT_EQ(schedule.last_transition(t), last);
      }
    }
}

TEST(Rebound, OursRisesLinearlyToTheSchedule) {
  const PhaseSchedule schedule{10, 20, 4, 8, true, false};
  EXPECT_DOUBLE_EQ(rebound_learning_rate(schedule, 0.5, 0.6, 9), 0.5);
  EXPECT_DOUBLE_EQ(rebound_learning_rate(schedule, 0.5, 0.6, 10), 0.5 / 8);
  EXPECT_DOUBLE_EQ(rebound_learning_rate(schedule, 0.5, 0.6, 17), 0.5);
  // The full-rank phase is shorter than the ramp: it reaches the full rate all the same.
  EXPECT_DOUBLE_EQ(rebound_learning_rate(schedule, 0.5, 0.6, 26), 0.5 / 4);
  EXPECT_DOUBLE_EQ(rebound_learning_rate(schedule, 0.5, 0.6, 29), 0.5);
}

TEST(Rebound, ReleaseFollowsTheTransitionsRate) {
  const PhaseSchedule schedule = release(10, 30, 5, 10);
  const double eta0 = 3e-3, slope = (eta0 - 1e-5) / 10;
  EXPECT_DOUBLE_EQ(rebound_learning_rate(schedule, 2e-3, eta0, 10), 1e-5);
  EXPECT_DOUBLE_EQ(rebound_learning_rate(schedule, 2e-3, eta0, 11), 2 * slope);
  EXPECT_DOUBLE_EQ(rebound_learning_rate(schedule, 2e-3, eta0, 19), 2e-3);
  EXPECT_DOUBLE_EQ(rebound_learning_rate(schedule, 2e-3, eta0, 20), 2e-3);
}

TEST(Rebound, NeverTurnsTheRateNegative) {
  for (const PhaseSchedule& schedule :
       {release(4330, 759, 60, 267), release(0, 100, 10, 50), PhaseSchedule{5, 20, 4, 8}})
    for (std::int64_t t = 0; t < 15000; ++t) {
      const double at_transition =
          1e-3 * (1 - static_cast<double>(std::max<std::int64_t>(0, schedule.last_transition(t))) / 15000);
      ASSERT_GE(rebound_learning_rate(schedule, 1e-3 * (1 - static_cast<double>(t) / 15000), at_transition, t), 0.0)
          << t;
    }
}

std::string layout(int world, int group_size, bool only_b) {
  std::string text;
  for (const RankGroup& g : make_groups(world, group_size, only_b))
    text += fmt::format("{}{}+{} ", g.alternates ? "ab" : g.trains == Factor::a ? "a" : "b", g.first, g.size);
  return text;
}

TEST(Groups, HalvesAndFixedSizes) {
  EXPECT_EQ(layout(4, -1, false), "a0+2 b2+2 ");
  EXPECT_EQ(layout(5, -1, false), "a0+2 b2+3 ");
  EXPECT_EQ(layout(2, -1, false), "a0+1 b1+1 ");
  EXPECT_EQ(layout(1, -1, false), "ab0+1 ");
  EXPECT_EQ(layout(8, 2, false), "a0+2 a2+2 b4+2 b6+2 ");
  EXPECT_EQ(layout(6, 2, false), "a0+2 b2+2 b4+2 ");
  EXPECT_EQ(layout(4, -1, true), "b0+4 ");
  EXPECT_EQ(layout(8, 4, true), "b0+4 b4+4 ");
}

TEST(Groups, LeftOverRanksJoinTheFirstGroups) {
  EXPECT_EQ(layout(5, 2, false), "a0+3 b3+2 ");
  EXPECT_EQ(layout(11, 4, false), "a0+6 b6+5 ");
  EXPECT_EQ(layout(7, 4, false), "ab0+7 ");
}

TEST(Groups, CoverTheWorldOnce) {
  for (int world = 1; world <= 17; ++world)
    for (int size = -1; size <= world; ++size) {
      if (size == 0) continue;
      const auto groups = make_groups(world, size, false);
      int next = 0;
      for (const RankGroup& g : groups) {
        EXPECT_EQ(g.first, next);
        next += g.size;
      }
      EXPECT_EQ(next, world);
      for (int rank = 0; rank < world; ++rank) {
        const RankGroup& g = groups[static_cast<std::size_t>(group_of(groups, rank))];
        EXPECT_TRUE(g.first <= rank && rank < g.first + g.size);
      }
      EXPECT_EQ(trainers_of(groups, Factor::a, 0) + trainers_of(groups, Factor::b, 0), world);
    }
}

TEST(Groups, AGroupLargerThanTheWorldIsRefused) { EXPECT_THROW(make_groups(4, 5, false), Error); }

TEST(Groups, TheOnlyGroupTakesTurns) {
  const auto groups = make_groups(1, -1, false);
  EXPECT_EQ(groups[0].trained_in_cycle(0), Factor::a);
  EXPECT_EQ(groups[0].trained_in_cycle(1), Factor::b);
  EXPECT_EQ(groups[0].trained_in_cycle(2), Factor::a);
}

TEST(RankPolicy, EachKind) {
  const std::vector<double> sigma{10, 5, 2, 1.5, 0.5, 0.1};
  RankPolicy policy;
  policy.ratio = 0;
  EXPECT_EQ(policy.choose(sigma), 3);  // 1.5 is not strictly above 0.15 · 10
  policy.ratio = 0.5;
  EXPECT_EQ(policy.choose(sigma), 3);
}

TEST(RankPolicy, RoundsUpAndNeverReachesZero) {
  RankPolicy policy;
  policy.ratio = 0.01;
  EXPECT_EQ(policy.choose(std::vector<double>(20, 1.0)), 1);
  policy.multiple = 8;
  EXPECT_EQ(policy.choose(std::vector<double>(20, 1.0)), 8);
  policy.ratio = 1.0;
  EXPECT_EQ(policy.choose(std::vector<double>(20, 1.0)), 20);
  policy = {};
  policy.ratio = 0;
  EXPECT_EQ(policy.choose(std::vector<double>(4, 0.0)), 1);
}

}  // namespace
}  // namespace ab
