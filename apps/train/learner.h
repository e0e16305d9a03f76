#pragma once
// SPDX-License-Identifier: MIT
//
// The model that one rank trains, with everything that changes with it from update to update and belongs in a checkpoint.

#include <memory>
#include <optional>
#include <vector>

#include "apps/methods/method.h"
#include "data/dataset.h"
#include "engine/comm/comm.h"
#include "engine/core/precision.h"
#include "engine/optim/loss_scale.h"
#include "engine/optim/schedule.h"
#include "layers/layer.h"
#include "layers/model_state.h"

namespace ab {

/// Where a model computes.
Device device_of(Layer& model);

struct Learner {
  /// `model`: of config's shape, on the device that trains; drawn on config's when null, and unless the run `goes_on` from a
  /// checkpoint whitened by `images`. `config`, `world` and `schedule` must outlive this. Collective.
  Learner(const TrainConfig& config, const Method& method, Comm& world, const Dataset& images,
          const LrSchedule& schedule, std::unique_ptr<Layer> model, bool goes_on);

  Device device;
  Precision precision;
  std::unique_ptr<Layer> model;
  std::unique_ptr<Optimizer> optimizer;
  std::optional<LossScale> loss_scale;  ///< of fp16
  std::unique_ptr<SyncStrategy> strategy;
  std::unique_ptr<WeightAverage> average;  ///< with ema_decay

  /// Applies the gradients of all ranks, which the strategy has finished.
  void update(TrainState& state, double learning_rate);
  /// Afterwards, when the strategy has had its turn too.
  void update_average();

  /// Running statistics of batch norm, and frozen filters.
  std::vector<Tensor> buffers() const;
  std::vector<Tensor> parameters() const;
  /// Parameters, then buffers; and their names.
  std::vector<Tensor> tensors() const;
  std::vector<std::string> names() const;

  void save(StateDict& dict);
  void load(const StateDict& dict, TrainState& state);
};

}  // namespace ab
