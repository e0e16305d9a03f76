#pragma once
// SPDX-License-Identifier: MIT
//
// abtrain plan --compare: one configuration planned by every method, for the choice between them. Each takes the settings
// with which its accuracy was measured (bench/convergence.list) and the bucket that delays it least.

#include "apps/plan/plan.h"
#include "apps/settings/config.h"

namespace ab {

/// A method as it was measured: rows of bench/convergence.tsv.
struct MeasuredMethod {
  const char* row;               ///< there
  const char* name;              ///< what to give as --method
  std::vector<FlagValue> flags;  ///< beside those of the configuration
  double points_below;           ///< its mean top-1 under that of dense training, in points
};
const std::vector<MeasuredMethod>& measured_methods();

struct BucketPlan {
  double bucket_mb = 0;  ///< 0: the default
  RunPlan plan{};
};
/// By the --bucket-mb, a power of two up to 32 or the default, that delays the run least.
BucketPlan plan_in_best_bucket(TrainConfig config, const PlanOptions& options);

struct MethodPlan {
  const MeasuredMethod* method = nullptr;
  std::string refused{};  ///< why it cannot train so; empty: it can
  BucketPlan best{};
};

/// All methods, dense training first and then by run_seconds(). `flags` and `config_file` as for resolve_train_config(), less
/// the method and what belongs to one. Throws Error(config) without options.step_milliseconds.
std::vector<MethodPlan> plan_all_methods(const std::vector<FlagValue>& flags, const std::string& config_file,
                                         const PlanOptions& options);

}  // namespace ab
