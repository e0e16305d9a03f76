#pragma once
// SPDX-License-Identifier: MIT
//
// All values of a model: as part of a checkpoint, with every tensor of this rank and the form that each weight is in, and as
// their moving average. (For the file that other programs read, see apps/model_file/model_file.h.)

#include <memory>

#include "engine/io/state_dict.h"
#include "layers/layer.h"

namespace ab {

/// Every parameter that may ever exist: of a weight, the dense one and both factors.
std::vector<Param*> all_params(Layer& model);

/// Adds "model.NAME" for parameters, buffers and rests, and "model.NAME.mode" for weights.
void save_model(Layer& model, StateDict& state);
/// Gives weights the form they had and takes all values back. Throws Error(checkpoint) when the state is of
/// a different model.
void load_model(Layer& model, const StateDict& state);

/// An exponential moving average of a model's weights (Polyak & Juditsky 1992), kept as a dense model of its own:
///   w̄ ← decay^k · w̄ + (1 − decay^k) · w
/// with k = updates since the last call. Ranks that train different factors have no common w: there the average
/// waits, k grows, and the next common model counts for all of those updates.
class WeightAverage {
 public:
  /// `average`: a dense model like the one that is trained; starts with its values.
  WeightAverage(std::unique_ptr<Layer> average, Layer& trained, double decay);

  /// An update after which ranks do not hold one model.
  void wait() { ++waited_; }
  /// An update after which they do. A factored weight counts as the product of its factors (and its rest).
  void update(Layer& trained) { wait(), catch_up(trained); }
  /// No update, but ranks hold one model again: it counts for the updates that were waited for.
  void catch_up(Layer& trained);
  /// The averaged model, with the running statistics of `trained`.
  Layer& model(Layer& trained);
  /// The same, to keep; this object is used up.
  std::unique_ptr<Layer> release(Layer& trained) &&;

  void save(StateDict& state) const;
  void load(const StateDict& saved);

 private:
  std::unique_ptr<Layer> average_;
  double decay_;
  std::int64_t waited_ = 0;
};

}  // namespace ab
