// SPDX-License-Identifier: MIT
#include "ablowrank/options.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace ab {

void AbOptions::validate() const {
  if (train == TrainedFactors::both) return validate_both();
  AB_CHECK(
      cut == CutOptions{},
      "--ab.train groups does not cut for good: cut-at, cut-keep, gather-steps and directions are for --ab.train both");
  AB_CHECK(
      !rank_policy.needs_data(),
      "--ab.rank-policy loss-share and loss-budget observe the training before a cut, which --ab.train groups has not; "
      "give --ab.train both");
  schedule.validate();
  AB_CHECK(rank_policy.multiple >= 1 && rank_policy.fixed >= 1,
           "AB-training: rank multiple and fixed rank are at least 1");
  AB_CHECK(gauge != Gauge::orthonormal || (sync != SyncMode::only_learned && sync != SyncMode::with_stale),
           "AB-training: sync only-learned and with-stale multiply A and B of different ranks, which needs "
           "--ab.gauge split-sigma");
  AB_CHECK(gauge != Gauge::split_sigma || sync != SyncMode::tangent,
           "AB-training: sync tangent needs --ab.gauge orthonormal");
  AB_CHECK(rest != Rest::keep || final_model == FinalModel::dense,
           "AB-training: with --ab.rest keep the model is more than its factors; give --ab.final-model dense too");
}

void AbOptions::validate_both() const {
  AB_CHECK(rank_policy.multiple >= 1 && rank_policy.fixed >= 1,
           "AB-training: rank multiple and fixed rank are at least 1");
  AB_CHECK(std::is_sorted(cut.at.begin(), cut.at.end(), std::less_equal{}) || cut.at.size() < 2,
           "--ab.cut-at: cuts come one after the other, so each share is larger than the one before");
  AB_CHECK(cut.keep.empty() || cut.keep.size() == cut.at.size(),
           "--ab.cut-keep has {} numbers for the {} cuts of --ab.cut-at", cut.keep.size(), cut.at.size());
  for (std::size_t i = 0; i < cut.keep.size(); ++i) {
    const double keep = cut.keep[i];
    const bool is_share = rank_policy.kind != RankPolicy::Kind::fixed;
    AB_CHECK(is_share ? keep > 0 && keep <= 1 : keep >= 1 && keep == std::floor(keep),
             "--ab.cut-keep {}: this rank policy keeps {}", keep,
             is_share ? "a share, above 0 and up to 1" : "whole numbers");
    const bool rises = i > 0 && keep > cut.keep[i - 1], falls = i > 0 && keep < cut.keep[i - 1];
    AB_CHECK(rank_policy.kind == RankPolicy::Kind::sigma_cutoff ? !falls : !rises,
             "--ab.cut-keep {}: a later cut cannot keep more than one before it", keep);
  }
  AB_CHECK(
      schedule == PhaseSchedule{} && sync == AbOptions{}.sync && gradient_scope == AbOptions{}.gradient_scope &&
          gauge == AbOptions{}.gauge && group_size == AbOptions{}.group_size,
      "--ab.train both has no groups and no cycles: leave warmup-steps, cycle-steps, full-rank-steps, lr-rebound-steps, "
      "paper-schedule, cut-at-warmup, sync, setup, gauge and group-size as they are, or give --ab.train groups");
  const RankPolicy defaults;
  const auto only_for = [&](RankPolicy::Kind kind, auto RankPolicy::*member, const char* flag, const char* word) {
    AB_CHECK(rank_policy.kind == kind || rank_policy.*member == defaults.*member,
             "--ab.{} is for --ab.rank-policy {}, which has not been chosen", flag, word);
  };
  only_for(RankPolicy::Kind::ratio, &RankPolicy::ratio, "ratio", "ratio");
  only_for(RankPolicy::Kind::energy, &RankPolicy::energy, "energy", "energy");
  only_for(RankPolicy::Kind::sigma_cutoff, &RankPolicy::cutoff, "sigma-cutoff", "sigma-cutoff");
  only_for(RankPolicy::Kind::fixed, &RankPolicy::fixed, "fixed-rank", "fixed");
  only_for(RankPolicy::Kind::loss_budget, &RankPolicy::budget, "budget", "loss-budget");
  AB_CHECK(rest == Rest::drop, "--ab.rest keep is for --ab.train groups: after a cut the factors are the model");
  AB_CHECK(moments != MomentCarry::truncate, "--ab.moments truncate is for --ab.train groups");
}

}  // namespace ab
