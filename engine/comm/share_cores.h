#pragma once
// SPDX-License-Identifier: MIT

#include "engine/comm/comm.h"

namespace ab {

/// set_compute_threads() for ranks that are processes, each with an affinity mask of its own: cores and quotas are divided among
/// those that share them. Collective. Not counted in the ledger.
void set_compute_threads(int n, Comm& world);

}  // namespace ab
