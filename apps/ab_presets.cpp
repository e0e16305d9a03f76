// SPDX-License-Identifier: MIT
#include "apps/ab_presets.h"

namespace ab {
namespace {

struct ReleasedExperiment {
  const char* name;
  std::int64_t warmup, cycle, full_rank, rebound;  // W, S, D, R
  const char* sync;
  int group_size;
};

// "2k" to "64k" are global batches; groups of 4 are the GPUs of a node.
constexpr ReleasedExperiment kReleased[] = {
    {"paper", 4330, 759, 60, 267, "only-b", 4},
    {"paper-resnet50-2k", 24000, 6000, 300, 600, "with-stale", 4},
    {"paper-resnet50-4k", 9300, 3000, 300, 750, "with-stale", 4},
    {"paper-resnet50-8k", 6150, 1500, 150, 325, "with-stale", 4},
    {"paper-resnet50-16k", 3750, 600, 75, 188, "with-stale", 4},
    {"paper-resnet50-32k", 1900, 400, 38, 94, "with-stale", 4},
    {"paper-resnet50-64k", 581, 94, 19, 47, "with-stale", 4},
    {"paper-resnet50-nogroups-2k", 24000, 6000, 300, 600, "only-b", -1},
    {"paper-resnet50-nogroups", 9300, 3000, 300, 750, "only-b", -1},
    {"paper-vit-2k", 24600, 4360, 600, 1500, "only-b", -1},
    {"paper-vit-4096", 12300, 2180, 300, 750, "only-b", -1},
};

}  // namespace

const std::vector<std::string>& ab_preset_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all{"default"};
    for (const ReleasedExperiment& experiment : kReleased) all.push_back(experiment.name);
    return all;
  }();
  return names;
}

void apply_preset(std::string name, AbConfig& ab) {
  ab = {};
  ab.preset = name;
  for (const ReleasedExperiment& experiment : kReleased) {
    if (name != experiment.name) continue;
    ab.warmup_steps = experiment.warmup;
    ab.cycle_steps = experiment.cycle;
    ab.full_rank_steps = experiment.full_rank;
    ab.lr_rebound_steps = experiment.rebound;
    ab.sync = experiment.sync;
    ab.group_size = experiment.group_size;
    ab.paper_schedule = true;
    ab.gauge = "split-sigma";
    ab.cut_at_warmup = false;
    ab.rank_policy = "sigma-cutoff";
    ab.sigma_cutoff = 0.15;
    ab.rank_multiple = 1;
    ab.moments = "truncate";
    ab.execution = "form-w";
    ab.svd = "direct";
  }
}

}  // namespace ab
