// SPDX-License-Identifier: MIT
#include "apps/plan/method_choice.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "engine/core/check.h"

namespace ab {
namespace {

using Flags = std::vector<FlagValue>;

Flags by_method(const std::string& name, Flags more = {}) {
  more.insert(more.begin(), {{"method", name}, {"comm_dtype", "bf16"}});
  return more;
}

/// Dion's updates come with rates of their own.
Flags dion() {
  return by_method("dion", {{"momentum", "0"}, {"nesterov", "false"}, {"weight_decay", "0.01"}, {"vector_lr", "1"}});
}

/// Settings that say how ranks communicate, which every method of the comparison brings itself.
bool is_of_a_method(const FlagValue& flag) {
  return flag.first.find('.') != std::string::npos || flag.first == "method" || flag.first == "preset" ||
         flag.first == "comm_dtype" || flag.first == "bucket_mb" || flag.first == "dense_steps";
}

bool is_dense(const MethodPlan& plan) { return plan.method->flags.front().second == kBaseline; }

constexpr double kBuckets[] = {1, 2, 4, 8, 16, 32};  ///< MiB
constexpr double kWorthSaying = 0.98;                ///< of what the default exposes

}  // namespace

const std::vector<MeasuredMethod>& measured_methods() {
  static const std::vector<MeasuredMethod> all{
      {"dense", "dense --comm-dtype fp32", {{"method", "dense"}, {"comm_dtype", "fp32"}}, 0},
      {"dense_bf16", "dense", by_method("dense"), -0.02},
      {"powersgd", "powersgd --powersgd.rank 0.25", by_method("powersgd", {{"powersgd.rank", "0.25"}}), -0.05},
      {"local_nodes", "local --local.node-size 0", by_method("local", {{"local.node_size", "0"}}), 0.22},
      {"daso", "daso", by_method("daso"), 0.22},
      {"local", "local", by_method("local"), 0.26},
      {"acpsgd", "acpsgd --acpsgd.rank 32", by_method("acpsgd", {{"acpsgd.rank", "32"}}), 0.31},
      {"late_cut", "late-cut", by_method("late-cut"), 0.51},
      {"mstopk", "mstopk", by_method("mstopk"), 0.92},
      {"hitopk", "hitopk", by_method("hitopk"), 0.95},
      {"ab", "ab", by_method("ab"), 1.35},
      {"scalecom", "scalecom", by_method("scalecom"), 2.53},
      {"artopk", "artopk", by_method("artopk"), 2.57},
      {"dion", "dion", dion(), 2.69},
      {"diloco", "diloco", by_method("diloco"), 3.70},
  };
  return all;
}

BucketPlan plan_in_best_bucket(TrainConfig config, const PlanOptions& options) {
  config.bucket_mb = 0;
  BucketPlan best{0, plan_run(config, options)};
  for (const double bucket : kBuckets) {
    config.bucket_mb = bucket;
    RunPlan plan = plan_run(config, options);
    if (plan.exposed_seconds() < kWorthSaying * best.plan.exposed_seconds()) best = {bucket, std::move(plan)};
  }
  return best;
}

std::vector<MethodPlan> plan_all_methods(const std::vector<FlagValue>& flags, const std::string& config_file,
                                         const PlanOptions& options) {
  AB_CHECK(options.step_milliseconds > 0,
           "--compare weighs communication against computing: give --step-ms, what one step computes for; train prints "
           "it at its end");
  std::vector<MethodPlan> plans;
  for (const MeasuredMethod& method : measured_methods()) {
    std::vector<FlagValue> own;
    std::ranges::remove_copy_if(flags, std::back_inserter(own), is_of_a_method);
    for (const FlagValue& flag : method.flags) {
      std::erase_if(own, [&](const FlagValue& given) { return given.first == flag.first; });
      own.push_back(flag);
    }
    plans.push_back({.method = &method});
    try {
      plans.back().best = plan_in_best_bucket(resolve_train_config(own, config_file, ConfigUse::plan), options);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::config || is_dense(plans.back())) throw;
      plans.back().refused = error.what();
    }
  }
  std::ranges::stable_sort(plans, {}, [](const MethodPlan& plan) {
    return std::make_tuple(!plan.refused.empty(), !is_dense(plan), is_dense(plan) ? 0 : plan.best.plan.run_seconds());
  });
  return plans;
}

}  // namespace ab
