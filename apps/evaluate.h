#pragma once
// SPDX-License-Identifier: MIT
//
// Loss and accuracy of a model over a whole data set, shared among ranks, every sample counted once.

#include "data/dataset.h"
#include "engine/comm/comm.h"
#include "layers/layer.h"

namespace ab {

struct Evaluation {
  double loss = 0;             ///< mean cross-entropy without label smoothing
  double top1 = 0, top5 = 0;   ///< fractions of samples
  std::int64_t samples = 0;
};

/// Collective over `world`; all ranks hold the same model. Leaves the model in training mode.
Evaluation evaluate(Layer& model, const ImageSet& set, Comm& world);

}  // namespace ab
