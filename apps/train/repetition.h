#pragma once
// SPDX-License-Identifier: MIT
//
// How a rehearsal (apps/plan/rehearsal.h) goes through the training loop: parts of a run that are as one before are left out.

#include "apps/train/learner.h"

namespace ab {

class Repetition {
 public:
  virtual ~Repetition() = default;

  /// An update or a validation, by all that decides what it exchanges beside the form of the model.
  struct Part {
    std::string phase;
    std::int64_t kind = 0;           ///< SyncStrategy::step_kind()
    std::int64_t micro_batches = 0;  ///< 0: a validation
    auto operator<=>(const Part&) const = default;
  };
  /// Whether the part is left out, and counts as the last one of its sort; never unless it `may`. Otherwise it begins.
  virtual bool leaves_out(const Part& part, bool may, Learner& learner) = 0;
  /// The part that began has come to its end.
  virtual void ends(Learner& learner) = 0;
};

}  // namespace ab
