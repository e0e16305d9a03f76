#pragma once
// SPDX-License-Identifier: MIT
//
// Collectives on texts, for what ranks tell each other besides numbers: names, file contents, failures.

#include <functional>
#include <string>
#include <vector>

#include "engine/comm/comm.h"

namespace ab {

/// Collective. The text of every rank, in rank order.
std::vector<std::string> gather_texts(Comm& comm, const std::string& mine);

/// Collective. The failure of the first rank that has one, behind that rank's number where there are several ranks; empty
/// when none has.
std::string first_failure(Comm& comm, const std::string& mine);

/// Collective. Runs this rank's `part`, which must not communicate, and tells all ranks how it went: empty
/// when no rank's part threw, else who failed first in rank order and why ("rank 2: cannot write …").
std::string failures_of(Comm& comm, const std::function<void()>& part);

}  // namespace ab
