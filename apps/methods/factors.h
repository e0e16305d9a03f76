#pragma once
// SPDX-License-Identifier: MIT
//
// The settings of methods that factorise weights, where they are alike.

#include "apps/settings/section.h"
#include "layers/weight.h"

namespace ab {

/// The setting execution.
template <class Options> void declare_execution(const Section<Options>& section) {
  section.choice("execution", &Options::execution,
                 {{"auto", Execution::automatic}, {"factors", Execution::factors}, {"form-w", Execution::form_w}},
                 "compute with two thin operations, with W = A*B, or with the cheaper of them");
}

/// The setting rank_multiple. 0 stands for what suits the device, and is settled when a run begins.
template <class Options, class Owner>
void declare_rank_multiple(const Section<Options>& section, std::int64_t Owner::*member) {
  section.number(
      "rank_multiple", member, 0, 1024,
      "round r up to a multiple of this; 0: of 8 on a GPU, which reads factors of other widths slowly, and of 1 on "
      "a CPU");
}

/// What the setting means: on a GPU rows of factors in 16 bits that begin at every 16 bytes, on a CPU nothing.
inline std::int64_t rank_multiple(std::int64_t given, const TrainConfig& config) {
  return given > 0 ? given : config.device == "cpu" ? 1 : 8;
}

}  // namespace ab
