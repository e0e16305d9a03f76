// SPDX-License-Identifier: MIT
//
// Local training: parameters averaged at the end of every round (engine/sync/local.h).
#include "apps/methods/local.h"

#include "apps/methods/method.h"
#include "apps/methods/nodes.h"
#include "apps/methods/preset.h"

namespace ab {
namespace {

constexpr const char* kName = "local";

LocalSettings qsr_vit_b() {
  LocalSettings local;
  local.qsr_alpha = 0.0175;
  return local;
}

void declare(std::vector<Setting>& settings) {
  auto s = method_section<LocalSettings>(settings, kName, "Local training (method local)");
  declare_preset<LocalSettings>(s, {{"default", {}}, {"qsr-vit-b", qsr_vit_b()}},
                                "where the other local settings start from: our own choice, or what the authors of QSR "
                                "trained ViT-B on ImageNet with");

  s.number("average_every", &LocalSettings::average_every, 1, 1e9,
           "H: every rank trains its own replica, and all average them after every so many steps");
  s.number("every_step_until", &LocalSettings::every_step_until, 0, 1e15,
           "post-local: average after every step before this one");
  s.number("qsr_alpha", &LocalSettings::qsr_alpha, 0, 1e6,
           "QSR: rounds of (alpha / learning rate)^power steps where that is longer than H; about twice the peak rate "
           "with AdamW; 0: off");
  s.number("qsr_power", &LocalSettings::qsr_power, 0.1, 10, "that power");
  s.number("node_size", &LocalSettings::node_size, 0, 65536,
           "ranks that share a node and average their gradients in every step; 0: as --ranks-per-node");
}

NodeLayout layout_of(const TrainConfig& config, int world_size) {
  return node_layout(config, local_settings(config).node_size, world_size);
}

void check(const TrainConfig& config, Layer&, int world_size) {
  check_node_size(kName, local_settings(config).node_size, world_size);
}

std::unique_ptr<SyncStrategy> average(const TrainConfig& config, Replica replica, Comm& world,
                                      const LrSchedule& schedule) {
  LocalOptions options = local_settings(config);
  options.node_size = layout_of(config, world.size()).node_size;
  // Ranks that do not share gradients share batch norms with all or with none.
  if (config.sync_bn == SyncBn::group && options.node_size == 1) replica.batch_norms.clear();
  return std::make_unique<LocalStrategy>(std::move(replica), world, options, schedule, config.sync_bn,
                                         gradient_wire(config));
}

}  // namespace

Method local_method() {
  return {.name = kName, .declare = declare, .check = check, .average = average, .drifts = true};
}

}  // namespace ab
