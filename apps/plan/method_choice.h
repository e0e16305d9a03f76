#pragma once
// SPDX-License-Identifier: MIT
//
// abtrain plan --compare: one configuration planned by every method, for the choice between them. Each takes the settings
// with which its accuracy was measured (bench/convergence.list), and the bucket that delays it least.

#include "apps/plan/plan.h"
#include "apps/settings/config.h"

namespace ab {

/// A method as it was measured: a row of bench/convergence.tsv.
struct MeasuredMethod {
  const char* row;               ///< there
  const char* name;              ///< what to give as --method
  std::vector<FlagValue> flags;  ///< of that row
  double points_below;           ///< its mean top-1 under that of dense training, in points
  /// Settings in steps, as shares of the run.
  std::vector<std::pair<const char*, double>> shares{};
};
const std::vector<MeasuredMethod>& measured_methods();

struct BucketPlan {
  TrainConfig config{};
  RunPlan plan{};
};
/// By the --bucket-mb, a power of two from 1/16 to 64 or the default, that delays the run least; a method with a bucket of
/// its own has the same one there, unless the configuration changes it. A step of unknown length computes as long as it
/// communicates in the default buckets.
BucketPlan plan_in_best_bucket(TrainConfig config, PlanOptions options);
/// `config`, with the size of that bucket in MiB where --bucket-mb is auto. Ranks come to the same without a word.
TrainConfig settle_bucket(const TrainConfig& config, const PlanOptions& options);
/// The sizes of its buckets, to be given as flags.
std::vector<FlagValue> bucket_flags(const TrainConfig& config);
/// "--method acpsgd --acpsgd.rank 32 --bucket-mb 16"
std::string flags_text(const std::vector<FlagValue>& flags);

struct MethodPlan {
  const MeasuredMethod* method = nullptr;
  bool can_train = true;           ///< so
  bool as_measured = true;         ///< the configuration changes none of the method's own settings
  std::vector<FlagValue> flags{};  ///< to give beside those of the configuration
  BucketPlan best{};
};

/// All methods, dense training first and then by RunPlan::run_seconds(). `flags` and `config_file` as for
/// resolve_train_config(). Throws Error(config) for flags of a method, without options.step_milliseconds, or where dense
/// training is refused.
std::vector<MethodPlan> plan_all_methods(const std::vector<FlagValue>& flags, const std::string& config_file,
                                         const PlanOptions& options);

}  // namespace ab
