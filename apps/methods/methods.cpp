// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include "apps/methods/method.h"

// One row a method, the baseline first: NAME stands for NAME_method(), in NAME.cpp or where the row says.
#define AB_METHODS(METHOD)                    \
  METHOD(dense)                               \
  METHOD(ab)                                  \
  METHOD(late_cut)                            \
  METHOD(local)                               \
  METHOD(diloco)     /* outer_steps.cpp */    \
  METHOD(sparseloco) /* outer_steps.cpp */    \
  METHOD(daso)                                \
  METHOD(powersgd) /* gradient_factors.cpp */ \
  METHOD(acpsgd)   /* gradient_factors.cpp */ \
  METHOD(dion)     /* own_momentum.cpp */     \
  METHOD(demo)     /* own_momentum.cpp */     \
  METHOD(scalecom) /* top_k.cpp */            \
  METHOD(mstopk)   /* top_k.cpp */            \
  METHOD(hitopk)   /* top_k.cpp */            \
  METHOD(artopk)                              \
  METHOD(int8) /* dense.cpp */

namespace ab {

#define AB_DECLARE(name) Method name##_method();
AB_METHODS(AB_DECLARE)

const std::vector<Method>& methods() {
#define AB_MAKE(name) name##_method(),
  static const std::vector<Method> all{AB_METHODS(AB_MAKE)};
  return all;
}

std::int64_t evaluation_period(const TrainConfig& config, const LrSchedule& schedule) {
  const std::int64_t per_epoch = schedule.steps_per_epoch, epochs = (schedule.total_steps + per_epoch - 1) / per_epoch;
  return config.eval_every > 0 ? std::min(config.eval_every, epochs) * per_epoch : schedule.total_steps;
}

std::unique_ptr<SyncStrategy> make_strategy(const Method& method, const TrainConfig& config, Layer& model, Comm& world,
                                            const LrSchedule& schedule) {
  if (method.make) return method.make(config, model, world, schedule);
  return method.average(config, replica_of(model, config.sync_bn != SyncBn::off), world, schedule);
}

std::int64_t rank_multiple(const TrainConfig& config) {
  return config.rank_multiple > 0 ? config.rank_multiple : config.device == "cpu" ? 1 : 8;
}

NodeLayout node_layout(const TrainConfig& config, int world_size) {
  return {world_size, std::clamp(config.ranks_per_node, 1, world_size)};
}

GradientWire gradient_wire(const TrainConfig& config) {
  const double by_default = config.device == "cpu" ? 4 : 25;  // on a GPU that of PyTorch: not timed
  const double mb = config.bucket_mb > 0 ? config.bucket_mb : by_default;
  return {.bucket_bytes = std::llround(mb * 1048576.0), .dtype = config.comm_dtype};
}

CompressionStart compression_start(const TrainConfig& config, const LrSchedule& schedule) {
  return {.dense_steps = dense_steps(config.dense_steps, schedule.total_steps),
          .gradients = gradient_wire(config),
          .seed = config.seed};
}

Replica replica_of(Layer& model, bool synchronised) {
  const Inventory inventory = inventory_of(model);
  Replica replica{
      .params = inventory.params, .buffers = moving_buffers(inventory), .frozen = frozen_buffers(inventory)};
  if (synchronised) replica.batch_norms = inventory.batch_norms;
  return replica;
}

}  // namespace ab
