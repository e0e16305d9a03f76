#pragma once
// SPDX-License-Identifier: MIT
//
// metrics.jsonl: what happened in a run, one JSON object a line, each flushed at once, so that a run can be
// watched while it goes and a killed one loses nothing. Accuracies are fractions from 0 to 1.
//   {"kind":"step","step":20,"epoch":0,"phase":"full","loss":1.9,"lr":0.1,"images_per_second":800,
//    "wire_bytes":1e6,"waiting_seconds":0.2,"image_waiting_seconds":0.01,"flops_per_second":9e10,
//    "peak_share":0.6}
//     and with a cache of images, where those since the last line came from, validated on and prepared ahead included: "images_from_cache":640,"images_from_nodes":0,
//     "images_from_disk":12,"images_from_files":3,"bytes_from_nodes":0,"bytes_from_disk":1e6,"bytes_from_files":3e5
//   {"kind":"epoch","epoch":0,"step":390,"val_loss":1.5,"val_top1":0.45,"val_top5":0.92}
//   {"kind":"split","step":400,"layers":[{"name":"fc.weight","m":64,"n":10,"r":5}]}
//     and in each layer, where that was observed, "kept":0.99,"increase":0.002,"by_loss":[0,0.4,…,1],"by_sigma":[0,0.2,…,1]
//   {"kind":"decision","epoch":0,"step":390,"skips":4,"wait":1}     after that epoch, for those to come; of some methods
// A number that JSON has no word for (NaN, infinity) is written as null.

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace ab {

inline constexpr double kNotKnown = std::numeric_limits<double>::quiet_NaN();

/// The loss is the mean over the steps since the last line, and over all ranks.
struct StepMetrics {
  std::int64_t step = 0;  ///< updates done
  std::int64_t epoch = 0;
  std::string phase;
  double loss = 0, lr = 0, images_per_second = 0;
  double wire_bytes = 0;             ///< sent by this rank since the start
  double waiting_seconds = 0;        ///< of this rank in collectives since the last line
  double image_waiting_seconds = 0;  ///< the same for its loader
  double flops_per_second =
      0;  ///< of forward and backward passes of this rank (engine/ops/flops.h), by all time of training
  double peak_share = kNotKnown;  ///< of the processor's peak
  std::map<std::string, std::int64_t>
      images{};  ///< that came since the last line to rank 0's machine, by where from; empty without a cache
};

struct EpochMetrics {
  std::int64_t epoch = 0, step = 0;
  double val_loss = 0, val_top1 = 0, val_top5 = 0;
  std::int64_t samples = 0, bad = 0;  ///< counted, and not since they could not be read; not in the file
};

/// A weight of m×n that was split into factors of rank r.
struct LayerRank {
  std::string name;
  std::int64_t m = 0, n = 0, r = 0;
  bool operator==(const LayerRank&) const = default;
};

/// The sensitivity of the loss to the directions of a weight, as observed before a cut.
struct LayerSensitivity {
  double kept = 1;      ///< share of it that the weight keeps
  double increase = 0;  ///< expected, of the loss of a sample
  /// Shares of the whole that the first k/16 of n directions hold, k = 0 … 16: of their sensitivity, and, of the weight's own
  /// directions, of the sum of squared singular values. Empty where that was not observed.
  std::vector<double> by_loss{}, by_sigma{};
  bool operator==(const LayerSensitivity&) const = default;
};
constexpr std::int64_t kSensitivityIntervals = 16;

struct SplitMetrics {
  std::int64_t step = 0;
  std::vector<LayerRank> layers;
  std::vector<LayerSensitivity> sensitivity{};  ///< of each layer, or empty
};

/// The decisions of a method at the end of an epoch (SyncStrategy::decision()).
struct DecisionMetrics {
  std::int64_t epoch = 0, step = 0;
  std::map<std::string, std::int64_t> values;
};

class MetricsLog {
 public:
  /// Keeps the first `keep_bytes` of a file that is there (a run that goes on at a checkpoint) and cuts off the
  /// rest; of a shorter one, which lost its end in a power cut, it keeps all. Throws Error(config) when the file cannot
  /// be created.
  explicit MetricsLog(const std::string& path, std::int64_t keep_bytes = 0);
  ~MetricsLog();
  MetricsLog(const MetricsLog&) = delete;
  MetricsLog& operator=(const MetricsLog&) = delete;

  void write(const StepMetrics& metrics);
  void write(const EpochMetrics& metrics);
  void write(const SplitMetrics& metrics);
  void write(const DecisionMetrics& metrics);
  /// The length of the file, all of it on the disk.
  std::int64_t synced_bytes() const;
  /// Lines that could not be written. A full disk costs one warning on stderr and these lines, not the run.
  std::int64_t lost_lines() const { return lost_lines_; }

 private:
  void append(std::string line);
  std::int64_t bytes() const;

  std::string path_;
  int descriptor_ = -1;
  bool inside_line_ = false;  // the disk took only part of the last line: the next one starts afresh
  std::int64_t lost_lines_ = 0;
};

}  // namespace ab
