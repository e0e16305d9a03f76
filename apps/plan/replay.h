#pragma once
// SPDX-License-Identifier: MIT
//
// How long a rehearsed run communicates, and how much of that delays it: its parts once more in their order, with a clock.
// A step computes as long as it is said to on average (with fewer micro-batches a part of that, and in proportion to the pixels
// of its images), each of its operations (engine/device/shapes/shapes.h) alike; so a bucket of
// gradients leaves when backward has come that far. (Among processes with --cuda-graph on all of them wait for its end,
// which is not planned.) Collectives leave one after another, as fast as bandwidth lets them; their latencies pass side by
// side, but a library's collectives wait for each other in full (nccl_comm.h). With t the time of one by itself
// (network.h) and b what bandwidth takes of it (by a library all), of one that starts at s
//   sent = max(s, sent of the one before) + b        arrived = sent + t − b
// and whoever waits for it before it has arrived is delayed until then. What is started in one step and waited for in a later
// one (the question whether to stop, DASO, DiLoCo) travels meanwhile. Validations, and what comes before and after the
// steps, compute nothing here.
// Groups of one split that send through the cards of the same nodes have each a part of a card. Groups wait for each other
// at the next synchronisation, so the slowest class of ranks counts in every phase.

#include "apps/plan/rehearsal.h"
#include "engine/comm/network.h"

namespace ab {

struct PhaseTime {
  double communication = 0;  ///< seconds
  double hidden = 0;         ///< of those, behind the computation
  double exposed() const { return communication - hidden; }
};

/// How many groups of its split send through the cards of a group of this rank, by the label of the group.
std::map<std::string, int> groups_at_once(const RehearsedRank& rank);

/// By phase; `step_seconds` 0: unknown, nothing is taken as hidden.
std::map<std::string, PhaseTime> replay(const RehearsedRun& run, const LinkModel& links, double step_seconds);

}  // namespace ab
