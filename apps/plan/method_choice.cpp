// SPDX-License-Identifier: MIT
#include "apps/plan/method_choice.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "apps/methods/method.h"
#include "apps/settings/setting.h"
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
bool is_of_a_method(const Setting& setting) {
  const std::string& key = setting.key;
  return !setting.table().empty() || (setting.beside && setting.beside->key == "method") || key == "method" ||
         key == "preset" || key == "comm_dtype" || key == "bucket_mb";
}

bool is_dense(const MethodPlan& plan) { return plan.method->flags.front().second == kBaseline; }

/// Whether the tables of its method say what flags alone would.
bool is_as_measured(const TrainConfig& config, const Flags& flags) {
  const TrainConfig plain = resolve_config_text(flags, "", "", ConfigUse::plan);
  return config.preset == plain.preset && std::ranges::all_of(train_settings(), [&](const Setting& setting) {
           return setting.table().empty() || !concerns(setting, plain) || setting.get(config) == setting.get(plain);
         });
}

constexpr double kFirstBucket = 1.0 / 16, kLastBucket = 64;  ///< MiB
constexpr double kWorthChanging = 0.98;                      ///< of what the default exposes

/// One of the methods, in its best bucket.
MethodPlan plan_method(const MeasuredMethod& method, const Flags& given, const std::string& config_file,
                       const PlanOptions& options) {
  MethodPlan result{.method = &method, .flags = method.flags};
  const auto resolve = [&] {
    Flags all = given;
    for (const FlagValue& flag : result.flags) {
      std::erase_if(all, [&](const FlagValue& other) { return other.first == flag.first; });
      all.push_back(flag);
    }
    return resolve_train_config(all, config_file, ConfigUse::plan);
  };
  const auto is_given = [&](const char* key) {
    return std::ranges::any_of(given, [&](const FlagValue& flag) { return flag.first == key; });
  };
  if (resolve().device == "cpu" && !is_given("allreduce")) result.flags.emplace_back("allreduce", "auto");
  const std::int64_t steps = plan_run(resolve(), options).summary.steps;
  for (const auto& [key, share] : method.shares)
    result.flags.emplace_back(key, std::to_string(std::max(1LL, std::llround(share * static_cast<double>(steps)))));
  result.as_measured = is_as_measured(resolve(), result.flags);
  result.best = plan_in_best_bucket(resolve(), options);
  if (const TrainConfig& best = result.best.config; best.bucket_mb > 0)
    for (FlagValue& flag : bucket_flags(best)) result.flags.push_back(std::move(flag));
  return result;
}

}  // namespace

const std::vector<MeasuredMethod>& measured_methods() {
  static const std::vector<MeasuredMethod> all{
      {"dense", "dense --comm-dtype fp32", {{"method", "dense"}, {"comm_dtype", "fp32"}}, 0},
      {"dense_bf16", "dense", by_method("dense"), -0.02},
      {"powersgd", "powersgd --powersgd.rank 0.25", by_method("powersgd", {{"powersgd.rank", "0.25"}}), -0.05},
      {"int8", "int8", {{"method", "int8"}}, 0.147},
      {"local_nodes", "local --local.node-size 0", by_method("local", {{"local.node_size", "0"}}), 0.22},
      {"daso", "daso", by_method("daso"), 0.22},
      {"local", "local", by_method("local"), 0.26},
      {"acpsgd", "acpsgd --acpsgd.rank 32", by_method("acpsgd", {{"acpsgd.rank", "32"}}), 0.31},
      {"late_cut", "late-cut", by_method("late-cut"), 0.51},
      {"mstopk", "mstopk", by_method("mstopk"), 0.92},
      {"hitopk", "hitopk", by_method("hitopk"), 0.95},
      {.row = "ab",  // in 32 bits
       .name = "ab",
       .flags = by_method("ab"),
       .points_below = 1.35,
       .shares = {{"ab.first_split", 140.0 / 576}, {"ab.cycle_steps", 40.0 / 576}, {"ab.full_rank_steps", 8.0 / 576}}},
      {"scalecom", "scalecom", by_method("scalecom"), 2.53},
      {"artopk", "artopk", by_method("artopk"), 2.57},
      {"dion", "dion", dion(), 2.69},
      {"diloco", "diloco", by_method("diloco"), 3.70},
  };
  return all;
}

BucketPlan plan_in_best_bucket(TrainConfig config, PlanOptions options) {
  options.beside_dense = false;
  config.bucket_mb = 0;
  std::vector<const Setting*> sizes = bucket_settings(config);
  std::erase_if(sizes, [&](const Setting* size) { return size->get(config) != size->get({}); });
  BucketPlan by_default{config, plan_run(config, options)};
  const double delay = by_default.plan.exposed_seconds();
  if (delay == 0) return by_default;
  if (by_default.plan.step_seconds == 0) {  // all communication counts as exposed
    options.step_milliseconds = 1000 * delay / static_cast<double>(by_default.plan.summary.steps);
    by_default.plan = plan_run(config, options);
  }
  BucketPlan best = by_default;
  for (double bucket = kFirstBucket; bucket <= kLastBucket; bucket *= 2) {
    for (const Setting* size : sizes) size->set(config, bucket);
    RunPlan plan = plan_run(config, options);
    if (plan.exposed_seconds() < best.plan.exposed_seconds()) best = {config, std::move(plan)};
  }
  const bool is_better = best.plan.exposed_seconds() < kWorthChanging * by_default.plan.exposed_seconds();
  return is_better ? best : by_default;
}

TrainConfig settle_bucket(const TrainConfig& config, const PlanOptions& options) {
  if (config.bucket_mb != kAutoBucket) return config;
  TrainConfig settled = plan_in_best_bucket(config, options).config;
  settled.bucket_mb = static_cast<double>(gradient_wire(settled).bucket_bytes) / 1048576;
  return settled;
}

std::vector<FlagValue> bucket_flags(const TrainConfig& config) {
  std::vector<FlagValue> flags;
  for (const Setting* size : bucket_settings(config))
    flags.emplace_back(size->key, fmt::format("{}", std::get<double>(size->get(config))));
  return flags;
}

std::string flags_text(const std::vector<FlagValue>& flags) {
  std::vector<std::string> words;
  for (const auto& [key, value] : flags) words.push_back(fmt::format("{} {}", find_setting(key)->flag(), value));
  return fmt::format("{}", fmt::join(words, " "));
}

std::vector<MethodPlan> plan_all_methods(const std::vector<FlagValue>& flags, const std::string& config_file,
                                         const PlanOptions& options) {
  AB_CHECK(
      options.step_milliseconds > 0,
      "--compare weighs communication against computing: give --step-ms, what one step computes for; train --ranks 1 "
      "--steps 300, with the model, batch, precision and device that are meant, prints it as 'ms a step'");
  for (const FlagValue& flag : flags) {
    const Setting* setting = find_setting(flag.first);
    AB_CHECK(!setting || !is_of_a_method(*setting),
             "--compare plans every method with settings of its own; leave {} away", setting->flag());
  }
  std::vector<MethodPlan> plans;
  for (const MeasuredMethod& method : measured_methods()) {
    try {
      plans.push_back(plan_method(method, flags, config_file, options));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::config || method.flags.front().second == kBaseline) throw;
      plans.push_back({.method = &method, .can_train = false, .flags = method.flags});
    }
    AB_CHECK(!plans.back().can_train || plans.back().best.plan.summary.world_size > 1,
             "--compare is about ranks that communicate, and this run has one; give --ranks");
  }
  std::ranges::stable_sort(plans, {}, [](const MethodPlan& plan) {
    return std::make_tuple(!plan.can_train, !is_dense(plan), is_dense(plan) ? 0 : plan.best.plan.run_seconds());
  });
  return plans;
}

}  // namespace ab
