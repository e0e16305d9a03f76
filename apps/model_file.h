#pragma once
// SPDX-License-Identifier: MIT
//
// model.safetensors of the program: parameters and running statistics under their names, factored weights as
// NAME.a and NAME.b (and NAME.rest where the rest is kept), and in __metadata__ what builds the model again:
//   format "abtrain", format_version, model, dataset, classes, factored (names, separated by commas),
//   conv_layout "KRSC" (output channel, kernel row, kernel column, input channel).

#include <memory>
#include <string>

#include "engine/io/safetensors.h"
#include "layers/layer.h"

namespace ab {

struct ModelInfo {
  std::string model, dataset;
  std::int64_t classes = 0;
};

/// The present state of a model.
TensorFile model_to_file(Layer& model, const ModelInfo& info);

struct LoadedModel {
  ModelInfo info;
  std::unique_ptr<Layer> model;
};

/// Builds the model that a file describes and fills it. Throws Error(checkpoint) that lists every tensor
/// which is missing, superfluous or of the wrong shape.
LoadedModel model_from_file(const TensorFile& content, const std::string& file, Device device = {});

}  // namespace ab
