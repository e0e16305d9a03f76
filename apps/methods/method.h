#pragma once
// SPDX-License-Identifier: MIT
//
// What methods have in common, beside their record (Method in setting.h). A new method is
//   engine/sync/NAME.h         options and strategy (sync_strategy.h)
//   apps/methods/NAME.cpp      its record, or that of several methods alike
//   and one row in methods.cpp, and one in tests/method_laws.h
// and engine/kernels/NAME.{h,cpp} for kernels that are not there yet: that folder alone is compiled for GPUs too.
// Flags, TOML table, --help and abtrain plan follow from the record; nothing else knows the method by name.

#include "apps/methods/told.h"
#include "apps/settings/section.h"
#include "engine/sync/compressed_gradients.h"
#include "engine/sync/replica_strategy.h"
#include "layers/layer.h"

namespace ab {

/// Steps from one validation to the next.
std::int64_t evaluation_period(const TrainConfig& config, const LrSchedule& schedule);

/// The strategy of a run, by whichever of make() and average() the method has.
std::unique_ptr<SyncStrategy> make_strategy(const Method& method, const TrainConfig& config, Layer& model, Comm& world,
                                            const LrSchedule& schedule);

/// What config.rank_multiple means: on a GPU rows of factors in 16 bits that begin at every 16 bytes, on a CPU nothing.
std::int64_t rank_multiple(const TrainConfig& config);
/// How the gradients of a run travel. On GPUs by larger buckets: starting a collective takes longer there, and sending less.
GradientWire gradient_wire(const TrainConfig& config);
/// `model` for methods that replicate it; `synchronised`: batch norms take their statistics over all ranks.
Replica replica_of(Layer& model, bool synchronised);
/// Ranks of a node as --ranks-per-node says, but never more than there are ranks; where that says nothing, every rank is a
/// node.
NodeLayout node_layout(const TrainConfig& config, int world_size);

/// How a method whose gradients are compressed after dense steps begins.
CompressionStart compression_start(const TrainConfig& config, const LrSchedule& schedule);
/// Method::average of such a method that takes its options and no more.
template <class Strategy, class Options>
std::unique_ptr<SyncStrategy> average_compressed(const TrainConfig& config, Replica replica, Comm& world,
                                                 const LrSchedule& schedule) {
  return std::make_unique<Strategy>(std::move(replica), world, config.of<Options>(),
                                    compression_start(config, schedule));
}

}  // namespace ab
