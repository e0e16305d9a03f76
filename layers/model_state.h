#pragma once
// SPDX-License-Identifier: MIT
//
// A model as part of a checkpoint: every tensor of this rank, and the form that each weight is in. (For the file
// that other programs read, see apps/model_file/model_file.h.)

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

}  // namespace ab
