// SPDX-License-Identifier: MIT
#include "ablowrank/groups/options.h"

#include "engine/core/check.h"

namespace ab {

void AbOptions::validate() const {
  schedule.validate();
  AB_CHECK(rank_policy.multiple >= 1, "AB-training: r is rounded up to a multiple of at least 1");
  AB_CHECK(gauge != Gauge::orthonormal || (sync != SyncMode::only_learned && sync != SyncMode::with_stale),
           "AB-training: sync only-learned and with-stale multiply A and B of different ranks, which needs "
           "--ab.gauge split-sigma");
  AB_CHECK(gauge != Gauge::split_sigma || sync != SyncMode::tangent,
           "AB-training: sync tangent needs --ab.gauge orthonormal");
  AB_CHECK(rest != Rest::keep || final_model == FinalModel::dense,
           "AB-training: with --ab.rest keep the model is more than its factors; give --ab.final-model dense too");
}

}  // namespace ab
