#pragma once
// SPDX-License-Identifier: MIT
//
// Models as safetensors files that PyTorch can read: parameters and running statistics under torchvision's
// names (or timm's) and in PyTorch's layout (torch_layout.h), and in __metadata__ what builds them again:
//   format "abtrain" · format_version · names (torchvision, timm) · model · dataset · classes · image_size ·
//   width · qkv_bias · factored · spatial (stored_factors.h)

#include <memory>
#include <string>
#include <vector>

#include "apps/model_file/torch_layout.h"
#include "data/transform.h"
#include "engine/io/safetensors.h"
#include "layers/models/models.h"

namespace ab {

struct ModelInfo {
  ModelSpec spec;  ///< of it, a file holds name, classes, image_size, width and qkv_bias
  std::string dataset;
  Framing framing{};  ///< of its validation: a file holds interpolation and the shorter side
};

struct LoadedModel {
  ModelInfo info;
  std::unique_ptr<Layer> model;
  std::vector<std::string> remarks = {};  ///< sentences on what of the file was ignored or read under another name
};

/// Whether abtrain wrote it, so that it says what model it holds.
bool describes_its_model(const TensorFile& content);

/// The present state of a model.
TensorFile model_to_file(Layer& model, const ModelInfo& info, TensorNames names = TensorNames::torchvision);

/// How many numbers that file stores: parameters as they are (factors, not their product), what cuts left beside them, and
/// running statistics. All commands count a model by it.
std::int64_t stored_numbers(Layer& model);

/// Builds the model that a file describes and fills it; factors stay factors. Throws Error(checkpoint) that
/// names the tensors which are missing, superfluous or of the wrong shape, or one that is not finite.
LoadedModel model_from_file(const TensorFile& content, const std::string& file, Device device = {});

/// How to treat a classifier that a file lacks, or that was stored for a different number of classes.
enum class OtherClassifier { refuse, keep_own };

struct LoadedWeights {
  std::vector<std::string> kept;  ///< tensors that keep their values by OtherClassifier
  bool had_classifier = true;
  std::vector<std::string> remarks;  ///< as LoadedModel's
};

/// Fills a dense model from a file of abtrain, torchvision or timm: the names tell which, less what wrappers of training
/// programs put before them (torch_layout.h). Factors are multiplied. Integers, truth values and empty tensors that the
/// model does not need are ignored. Throws as model_from_file().
LoadedWeights load_weights(Layer& model, const TensorFile& content, const std::string& file,
                           OtherClassifier other_classifier = OtherClassifier::refuse);

/// Replaces the factors of all weights by W, and returns how many there were.
std::int64_t merge_factors(Layer& model);

}  // namespace ab
