#pragma once
// SPDX-License-Identifier: MIT
//
// How long a planned run communicates, and how much of that delays it. In a step, gradient buckets leave while backward still
// computes: each once its last gradient is there, the last one when backward is done. (Among processes with --cuda-graph on
// all of them wait for that, which is not planned.) One is sent after another, their latencies pass side by side; NCCL's
// collectives wait for each other in full. With t the time of a bucket by itself (link_model.h), b what bandwidth takes of it
// (by NCCL all), and c the compute time of a micro-batch (the last of a step), two thirds of which are backward, whose
// gradients become ready evenly, tensor by tensor,
//   full_i    = 2/3 · c · (gradients of buckets 1 … i) / (all)
//   sent_i    = max(full_i, sent_(i−1)) + b_i
//   arrived_i = sent_i + t_i − b_i
//   exposed   = max(sent_last, max over i of arrived_i − w) − 2/3 · c      hidden = sum of t − exposed
// w is what a step waits for after backward and before its buckets: latencies of these pass beside it too, but by NCCL.
// What a method waits for only s steps of k micro-batches later hides min(s · k · c, its time), except by NCCL.
// HiTopKComm's groups, which exchange at once through the cards of the same nodes, have each a part of a card; other groups
// that share one are not told apart.
// Everything else (splits, synchronisations, validations, extra collectives that are waited for at once) is exposed.
// Groups wait for each other at the next synchronisation, so the slowest class of ranks counts in every phase. Computing is the
// same in all phases: what thin factors save in a step, and what a decomposition costs, is left out.

#include <map>
#include <string>

#include "engine/comm/link_model.h"
#include "engine/plan/traffic_plan.h"

namespace ab {

struct PhaseTime {
  double communication = 0;  ///< seconds
  double hidden = 0;         ///< of those, behind the computation
  double exposed() const { return communication - hidden; }
};

/// By phase; `batch_seconds` (c) 0: unknown, nothing is taken as hidden.
std::map<std::string, PhaseTime> plan_time(const TrafficPlan& plan, const LinkModel& links, double batch_seconds);

}  // namespace ab
