// SPDX-License-Identifier: MIT
#include "apps/methods/ab.h"

namespace ab {
namespace {

struct ReleasedExperiment {
  const char* name;
  std::int64_t warmup, cycle, full_rank, rebound;  // W, S, D, R
  SyncMode sync;
  int group_size;
};

// "2k" to "64k" are global batches; groups of 4 are the GPUs of a node.
constexpr ReleasedExperiment kReleased[] = {
    {"paper", 4330, 759, 60, 267, SyncMode::only_b, 4},
    {"paper-resnet50-2k", 24000, 6000, 300, 600, SyncMode::with_stale, 4},
    {"paper-resnet50-4k", 9300, 3000, 300, 750, SyncMode::with_stale, 4},
    {"paper-resnet50-8k", 6150, 1500, 150, 325, SyncMode::with_stale, 4},
    {"paper-resnet50-16k", 3750, 600, 75, 188, SyncMode::with_stale, 4},
    {"paper-resnet50-32k", 1900, 400, 38, 94, SyncMode::with_stale, 4},
    {"paper-resnet50-64k", 581, 94, 19, 47, SyncMode::with_stale, 4},
    {"paper-resnet50-nogroups-2k", 24000, 6000, 300, 600, SyncMode::only_b, -1},
    {"paper-resnet50-nogroups", 9300, 3000, 300, 750, SyncMode::only_b, -1},
    {"paper-vit-2k", 24600, 4360, 600, 1500, SyncMode::only_b, -1},
    {"paper-vit-4096", 12300, 2180, 300, 750, SyncMode::only_b, -1},
};

}  // namespace

const std::vector<std::string>& ab_preset_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all{"default", "groups"};
    for (const ReleasedExperiment& experiment : kReleased) all.push_back(experiment.name);
    return all;
  }();
  return names;
}

AbSettings ab_preset(const std::string& name) {
  AbSettings ab;
  ab.preset = name;
  if (name == "default") return ab;
  ab.train = TrainedFactors::groups;
  ab.full_rank_method = kBaseline;
  ab.cut = {};
  ab.rank_policy.kind = RankPolicy::Kind::ratio;
  for (const ReleasedExperiment& experiment : kReleased) {
    if (name != experiment.name) continue;
    ab.schedule = {experiment.warmup,       experiment.cycle,      experiment.full_rank, experiment.rebound,
                   /*cut_at_warmup=*/false, /*release_order=*/true};
    ab.sync = experiment.sync;
    ab.group_size = experiment.group_size;
    ab.gauge = Gauge::split_sigma;
    ab.rank_policy.kind = RankPolicy::Kind::sigma_cutoff;
    ab.rank_policy.cutoff = 0.15;
    ab.rank_policy.multiple = 1;
    ab.moments = MomentCarry::truncate;
    ab.execution = Execution::form_w;
    ab.svd = SvdMethod::direct;
  }
  return ab;
}

}  // namespace ab
