#pragma once
// SPDX-License-Identifier: MIT
//
// The settings of AB-training (Coquelin et al., arXiv 2405.01067), as types.

#include <cstdint>
#include <string>
#include <vector>

#include "ablowrank/factorise.h"
#include "ablowrank/groups/phases.h"
#include "engine/core/check.h"
#include "engine/sync/batch_norm_sync.h"
#include "engine/sync/gradient_buckets.h"
#include "layers/weight.h"

namespace ab {

/// How the independently trained factors become one W again. U, V: the orthonormal factors of the split.
enum class SyncMode {
  full,          ///< every rank forms its own A·B; W is their mean
  with_stale,    ///< mean of all A (trained and frozen copies) times mean of all B
  only_learned,  ///< mean of the trained A times mean of the trained B
  only_b,        ///< A stays; every rank trains B, and B is averaged
  tangent,       ///< W = A V + U B − ½ U (Uᵀ A + B Vᵀ) V: both updates in full, what they share counted once
};

/// What happens to optimizer state when a weight changes form.
enum class MomentCarry {
  project,  ///< moments follow the gradient: m_A = m_W Bᵀ, m_B = Aᵀ m_W; back at a sync for SGD with SyncMode::tangent,
            ///< anew otherwise
  truncate,  ///< W's moments sleep while the factors train; a factor's are cut or padded to its new rank
};

/// What becomes of the directions that the cut leaves over.
enum class Rest {
  drop,  ///< they are gone (the paper): the model is low-rank while its factors train
  keep,  ///< they stay in the model as a frozen dense tensor: nothing is lost at a split, and the bytes on the
         ///< wire are the same, but layers compute with W = A·B + rest and the memory of W is not saved
};

/// What a run that ends in a low-rank phase leaves behind.
enum class FinalModel { factors, dense };

struct AbOptions {
  PhaseSchedule schedule;
  RankPolicy rank_policy;
  SyncMode sync = SyncMode::tangent;
  Gauge gauge = Gauge::orthonormal;
  Rest rest = Rest::drop;
  MomentCarry moments = MomentCarry::project;
  FinalModel final_model = FinalModel::factors;
  Execution execution = Execution::automatic;
  int group_size = -1;                     ///< ranks per group; -1: two halves of the world
  std::vector<std::string> always_sync{};  ///< parameters that are never factorised; empty: the model's own list
  SyncBn sync_bn = SyncBn::off;
  GradientWire gradients{};

  bool operator==(const AbOptions&) const = default;

  /// Throws Error(config) when settings exclude each other.
  void validate() const;
};

inline void AbOptions::validate() const {
  AB_CHECK(gauge != Gauge::orthonormal || (sync != SyncMode::only_learned && sync != SyncMode::with_stale),
           "AB-training: sync only-learned and with-stale multiply A and B of different ranks, which needs "
           "--ab.gauge split-sigma");
  AB_CHECK(gauge != Gauge::split_sigma || sync != SyncMode::tangent,
           "AB-training: sync tangent needs --ab.gauge orthonormal");
  AB_CHECK(rest != Rest::keep || final_model == FinalModel::dense,
           "AB-training: with --ab.rest keep the model is more than its factors; give --ab.final-model dense too");
}

}  // namespace ab
