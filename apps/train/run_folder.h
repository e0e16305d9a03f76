#pragma once
// SPDX-License-Identifier: MIT
//
// The folder of a run: config.toml, metrics.jsonl, checkpoints, and, when it is complete, model.safetensors (and that of
// the averaged weights) and summary.json.

#include <optional>
#include <string>
#include <vector>

#include "apps/settings/config.h"
#include "apps/train/summary.h"

namespace ab {

inline constexpr const char* kConfigFile = "config.toml";
inline constexpr const char* kMetricsFile = "metrics.jsonl";
inline constexpr const char* kSummaryFile = "summary.json";
inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kAverageFile = "model_average.safetensors";
inline constexpr const char* kCheckpointFolder = "checkpoints";

/// "runs/a" and "summary.json" to "runs/a/summary.json".
std::string in_folder(const std::string& folder, const char* file);

/// A model file, or that of the run folder which was given instead. Throws Error(checkpoint) when that run has not ended.
std::string model_path(const std::string& file_or_folder);

/// Whether the path is that of a file which a run writes, or may write yet, in a folder that holds one.
bool is_file_of_run(const std::string& path);

/// Throws Error(config) when `config.out` holds a run that may not be overwritten (nor begun again by --resume
/// auto), is a file, or cannot be written to. Changes nothing, so that every rank may ask before any of them starts.
void check_run_folder(const TrainConfig& config);

/// How a run begins.
enum class Start {
  anew,
  from_checkpoint,
  finished,  ///< it is complete already
};

/// The checkpoint that `config.resume` finds in the folder. Without it a run starts anew; with "auto" also one that ended before
/// its first checkpoint. Throws Error(config) when the run there has other settings (check_resumable), and
/// Error(checkpoint) when a run that is named to be resumed has no checkpoint.
Start start_of(const TrainConfig& config);

/// Throws an error that names the right number when another number of ranks saved the newest checkpoint: Error(config) for
/// threads, whose number is a setting, Error(checkpoint) for processes, which a launcher counts.
void check_ranks(const TrainConfig& config, int world_size, bool launched);

/// `config` with the multiple of ranks r that suits the device that a run begins on; a run that goes on keeps it, and for
/// --bucket-mb auto its buckets.
TrainConfig settle_config(TrainConfig config);

/// Creates the folder, and nothing in it; a loss of power does not take it away again.
void create_run_folder(const TrainConfig& config);
/// Removes the temporary files (AtomicFile) of a run that was killed while it wrote. For the rank that holds the
/// folder's lock.
void remove_half_written_files(const TrainConfig& config);
/// Removes the files of a run that is to be overwritten, and writes config.toml. For the rank that holds the
/// folder's lock, after all have passed check_run_folder().
void begin_run_folder(const TrainConfig& config);
/// Writes config.toml, with absolute paths, unless it says the same already: a run that goes on may have changed settings.
/// For the rank that holds the folder's lock.
void record_config(const TrainConfig& config);

/// Removes the checkpoint of `step`, the last one, which train() saves before the last validation, unless save_every
/// asked for it too. For when the model has been written. Throws Error(checkpoint) when it cannot be removed.
void remove_last_checkpoint(const TrainConfig& config, std::int64_t step);

/// A run as `compare` knows it.
struct Run {
  std::string folder;
  std::string label;  ///< the last part of the folder's path
  Summary summary;
  std::optional<TrainConfig> config;
  std::vector<StepMetrics> steps;
  std::vector<EpochMetrics> epochs;
  std::vector<SplitMetrics> splits;
  std::vector<DecisionMetrics> decisions;
};

/// Nothing where config.toml is not there or cannot be read, as that of another release perhaps.
std::optional<TrainConfig> config_of_run(const std::string& folder);
/// Reads summary.json, or that of the run folder which was given instead. Throws Error(data) when that run has not ended.
Summary read_summary(const std::string& file_or_folder);
/// Reads summary.json and metrics.jsonl, leaving out lines that were cut off. Throws Error(data) in one
/// sentence when the folder holds no finished run.
Run read_run(const std::string& folder);

}  // namespace ab
