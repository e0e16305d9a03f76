#pragma once
// SPDX-License-Identifier: MIT
//
// Checkpoints: the state of all ranks at one step, from which a run goes on exactly as if it had never
// stopped. Saving:
//   1. rank 0 makes a temporary folder, and the ranks exchange the hashes of their tensors;
//   2. every rank writes its shard: its values, and the tensors that no lower rank holds with equal bits;
//   3. when all ranks have theirs on disk, rank 0 adds the manifest and renames the folder to its final name;
//   4. older checkpoints go.
// A crash, a full disk or a rank that cannot write leaves the checkpoints as they were. Loading trusts nothing:
// every name, shape, type and hash is compared with the manifest, and files are read, never mapped, so that one
// that shrinks meanwhile is an error and not a signal. Layout: checkpoint_folder.h, manifest.h.
// The ledger counts what the ranks exchange in its phase "checkpoint". A write beyond RLIMIT_FSIZE is an Error
// only in a process that ignores SIGXFSZ; otherwise the signal ends it.

#include <cstdint>
#include <optional>
#include <string>

#include "engine/comm/comm.h"
#include "engine/io/state_dict.h"

namespace ab {

/// Collective. Saves `state` of every rank as FOLDER/step_000000001200, on a disk that all ranks share,
/// replacing one of the same step, and removes older ones but for the newest `keep` (at least 1) with this
/// one. Nobody else may save into `folder` meanwhile (run_lock.h). Throws Error(checkpoint) on all ranks,
/// naming the rank that failed and its reason, and Error(numerics) when a tensor of any rank holds NaN or infinity;
/// nothing has been published then.
void save_checkpoint(const std::string& folder, std::int64_t step, const StateDict& state, int keep, Comm& world);

struct Checkpoint {
  std::int64_t step = 0;
  StateDict state;  ///< what this rank saved; tensors in host memory
  std::string path;
};

/// Collective. The newest checkpoint that is whole for all ranks; a damaged one, one of a newer format, or one that
/// holds NaN or infinity is passed over with one warning on stderr, by rank 0. None when the folder holds no
/// checkpoint. Throws Error(checkpoint) when it holds some and none can be used, and when the newest whole one was saved
/// by a different number of ranks.
std::optional<Checkpoint> load_newest_checkpoint(const std::string& folder, Comm& world);

/// How many ranks saved the newest checkpoint in `folder` whose manifest can be read; 0 where there is none.
int ranks_of_newest_checkpoint(const std::string& folder);

/// Collective. The checkpoint of `step`. Throws Error(checkpoint) that lists those there when it is none of them, and
/// when it cannot be used.
Checkpoint load_checkpoint_of(std::int64_t step, const std::string& folder, Comm& world);

}  // namespace ab
