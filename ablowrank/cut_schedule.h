#pragma once
// SPDX-License-Identifier: MIT
//
// When the late cut observes and cuts: a pure function of the number of updates done.

#include <cstdint>
#include <vector>

#include "ablowrank/late_cut_options.h"

namespace ab {

class CutSchedule {
 public:
  /// Cuts at these shares of `total_steps`; one that would fall on a validation, every `evaluation_period` steps, comes a
  /// step later, or earlier at the end of a run: running statistics of batch norm need some steps to follow (where every step is validated, they are not
  /// given any). Where fewer steps lie before a cut than are to be observed, all of them are. Throws Error(config) when
  /// there is no step before a cut, or none after the last.
  CutSchedule(const LateCutOptions& options, std::int64_t total_steps, std::int64_t evaluation_period);

  /// How many cuts have been made once `step` updates are done.
  std::size_t cuts_until(std::int64_t step) const;
  bool cuts_at(std::int64_t step) const;
  /// Whether the update that follows `step` updates is observed.
  bool observes_at(std::int64_t step) const;
  const std::vector<std::int64_t>& cuts() const { return cuts_; }

 private:
  std::vector<std::int64_t> cuts_;
  std::int64_t gather_steps_;
};

}  // namespace ab
