#pragma once
// SPDX-License-Identifier: MIT
//
// The folder of a run: config.toml, metrics.jsonl, summary.json and model.safetensors.

#include <string>
#include <vector>

#include "apps/config.h"
#include "apps/summary.h"

namespace ab {

inline constexpr const char* kConfigFile = "config.toml";
inline constexpr const char* kMetricsFile = "metrics.jsonl";
inline constexpr const char* kSummaryFile = "summary.json";
inline constexpr const char* kModelFile = "model.safetensors";

/// "runs/a" and "summary.json" to "runs/a/summary.json".
std::string in_folder(const std::string& folder, const char* file);

/// Throws Error(config) when `config.out` holds a run and may not be overwritten, is a file, or cannot be
/// written to. Changes nothing, so that every rank may ask before any of them starts.
void check_run_folder(const TrainConfig& config);

/// Creates the folder, removes the files of a run that is to be overwritten, and writes config.toml.
/// For one rank only, after all have passed check_run_folder().
void create_run_folder(const TrainConfig& config);

/// What `compare` knows of a run.
struct Run {
  std::string folder;
  std::string label;  ///< the last part of the folder's path
  Summary summary;
  std::vector<StepMetrics> steps;
  std::vector<EpochMetrics> epochs;
  std::vector<SplitMetrics> splits;
};

/// Reads summary.json and metrics.jsonl, leaving out lines that were cut off. Throws Error(data) in one
/// sentence when the folder holds no finished run.
Run read_run(const std::string& folder);

}  // namespace ab
