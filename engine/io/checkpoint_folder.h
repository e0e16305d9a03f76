#pragma once
// SPDX-License-Identifier: MIT
//
// The folder in which the checkpoints of one run lie, as one process sees it:
//   step_000000001200/  manifest.json  rank_00000.safetensors  rank_00001.safetensors …
//   .saving_step_…      a checkpoint that is being written, or was when its job died
//   .removing_step_…    a checkpoint that is being removed
//   later_step_…        one of a run that went on from an older checkpoint
// A folder named step_… has been renamed to it when everything in it was on disk, so it is complete. All
// functions throw Error(checkpoint) with the path and the system's reason.

#include <cstdint>
#include <string>
#include <vector>

namespace ab {

/// "FOLDER/step_000000001200"
std::string checkpoint_path(const std::string& folder, std::int64_t step);
std::string manifest_path(const std::string& checkpoint);
/// The file that a rank writes.
std::string shard_path(const std::string& checkpoint, int rank);

/// Steps of the checkpoints in `folder`, newest first; none when there is no such folder.
std::vector<std::int64_t> checkpoints_in(const std::string& folder);

/// Whether there are some, or one that restore_replaced() would put back.
bool holds_checkpoints(const std::string& folder);

/// Puts a checkpoint back that a job was about to replace when it died, where the disk cannot swap two folders.
void restore_replaced(const std::string& folder);

/// Removes what jobs that died have left half written or half removed. Nobody else may save here meanwhile: a
/// folder belongs to one run (see run_lock.h). Files that cannot be removed, as one that a network disk keeps because it is
/// open somewhere, stays: the answer is why, or empty.
std::string remove_leftovers(const std::string& folder);

/// Out of sight at once, then file by file: a checkpoint is never seen without some of its files.
void remove_checkpoint(const std::string& folder, std::int64_t step);

/// Removes the checkpoints before `step` but for the newest `keep - 1`. Later ones stay: a run that continues
/// from before them could not read them, which does not mean that nobody can.
void remove_old_checkpoints(const std::string& folder, std::int64_t step, int keep);

/// Renames the checkpoints after `step` to later_step_…, where nothing looks for them, and returns their new paths: a
/// run that goes on from before them must not find them when it is resumed.
std::vector<std::string> set_later_checkpoints_aside(const std::string& folder, std::int64_t step);

/// A checkpoint that nobody sees until publish(); without it, everything written is removed.
class UnpublishedCheckpoint {
 public:
  /// Makes the temporary folder, and `folder` too when it is missing.
  UnpublishedCheckpoint(std::string folder, std::int64_t step);
  ~UnpublishedCheckpoint();
  UnpublishedCheckpoint(const UnpublishedCheckpoint&) = delete;
  UnpublishedCheckpoint& operator=(const UnpublishedCheckpoint&) = delete;

  /// Where its files are written.
  const std::string& path() const { return temporary_; }
  /// Renames it to its final name once its files, synced already, are in a synced folder. A checkpoint of the
  /// same step is replaced.
  void publish();

 private:
  std::string folder_, temporary_, final_;
};

}  // namespace ab
