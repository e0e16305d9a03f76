#pragma once
// SPDX-License-Identifier: MIT
//
// Loss and accuracy of a model over a whole data set, shared among ranks, every sample counted once.

#include <optional>

#include "apps/train/stop_request.h"
#include "data/loader.h"
#include "engine/comm/comm.h"
#include "engine/core/precision.h"
#include "layers/layer.h"

namespace ab {

struct Evaluation {
  double loss = 0;            ///< mean cross-entropy without label smoothing
  double top1 = 0, top5 = 0;  ///< fractions of samples
  std::int64_t samples = 0;
};

/// How often the ranks ask each other whether to stop: batches of the rank that has most.
std::int64_t evaluation_batches(std::int64_t samples, std::int64_t image_size, int ranks);

/// An image could not be had; all ranks are told, and can go on together.
class EvaluationError : public Error {
 public:
  explicit EvaluationError(const std::string& message) : Error(ErrorKind::data, message) {}
};

/// Collective over `world`; all ranks hold the same model. Leaves the model in training mode. `image_size`: height
/// and width that the model sees; 0: as the data set has them. With `stop`, nothing comes back when the ranks agree
/// to stop on the way. `stall_timeout_seconds`: see LoaderOptions. Throws EvaluationError on all ranks or none.
std::optional<Evaluation> evaluate(Layer& model, const Dataset& set, Comm& world, std::int64_t image_size = 0,
                                   Precision precision = Precision::fp32, StopAgreement* stop = nullptr,
                                   double stall_timeout_seconds = LoaderOptions{}.stall_timeout_seconds);

}  // namespace ab
