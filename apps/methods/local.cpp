// SPDX-License-Identifier: MIT
//
// Local training: parameters averaged at the end of every round (engine/sync/local.h).
#include "engine/sync/local.h"

#include <algorithm>

#include "apps/methods/method.h"

namespace ab {
namespace {

constexpr const char* kName = "local";

void qsr_vit_b(TrainConfig& config) {
  LocalOptions& options = config.of<LocalOptions>() = {};
  options.qsr_alpha = 0.0175;
}

void declare(std::vector<Setting>& settings) {
  auto s = method_section<LocalOptions>(settings, kName, "Local training (method local)");
  s.number("average_every", &LocalOptions::average_every, 1, 1e9,
           "H: every rank trains its own replica, and all average them after every so many steps");
  s.number("qsr_alpha", &LocalOptions::qsr_alpha, 0, 1e6,
           "QSR: rounds of (alpha / learning rate)^power steps where that is longer than H; about twice the peak rate "
           "with AdamW; 0: off");
  s.number("qsr_power", &LocalOptions::qsr_power, 0.1, 10, "that power").beside = {"local.qsr_alpha", {}};
  s.number("node_size", &LocalOptions::node_size, 0, 65536,
           "ranks that share a node and average their gradients in every step; 0: as --ranks-per-node");
}

void check(const TrainConfig& config, Layer&, int world_size) {
  const int node_size = config.of<LocalOptions>().node_size;
  AB_CHECK(node_size <= world_size, "--local.node-size {} needs as many ranks, but there {} {}", node_size,
           world_size == 1 ? "is" : "are", world_size);
}

std::unique_ptr<SyncStrategy> average(const TrainConfig& config, Replica replica, Comm& world,
                                      const LrSchedule& schedule) {
  LocalOptions options = config.of<LocalOptions>();
  if (options.node_size == 0) options.node_size = node_layout(config, world.size()).node_size;
  options.every_step_until = std::max<std::int64_t>(config.dense_steps, 0);
  // Ranks that do not share gradients share batch norms with all or with none.
  if (config.sync_bn == SyncBn::group && options.node_size == 1) replica.batch_norms.clear();
  return std::make_unique<LocalStrategy>(std::move(replica), world, options, schedule, config.sync_bn,
                                         gradient_wire(config));
}

}  // namespace

Method local_method() {
  return {.name = kName,
          .declare = declare,
          .presets = {{"qsr-vit-b", "ViT-B on ImageNet by the authors of QSR", qsr_vit_b}},
          .check = check,
          .average = average,
          .dense_start = true,
          .drifts = true};
}

}  // namespace ab
