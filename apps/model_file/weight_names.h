#pragma once
// SPDX-License-Identifier: MIT
//
// From the names that tensors have in the files of other programs to those that a model has in torchvision or timm:
// without what wrappers put before or between them, and with the classifier where the model has its own.

#include <map>
#include <string>
#include <vector>

#include "engine/io/safetensors.h"

namespace ab {

/// The tensors of a model in a file, by name.
using FileShapes = std::map<std::string, Shape>;

/// Renames the tensors of `content` as far as wrappers of training programs named them: "module." (DataParallel, SWA),
/// "_orig_mod." (torch.compile), "model.", "state_dict." or whatever else stands before all of `wanted`, the names of the
/// model in each library. Returns what it left out ("module."), in the order of its finding. Throws Error(checkpoint) when
/// the file holds the tensors of the model several times.
std::vector<std::string> unwrap_names(TensorFile& content, const std::vector<FileShapes>& wanted,
                                      const std::string& file);

/// Where the file has no tensors for the model's `classifier` ("fc."), and one linear layer beside what the model needs
/// that has as many inputs, that layer takes its name. Returns the name that it had, empty where nothing was renamed.
std::string rename_classifier(TensorFile& content, const FileShapes& wanted, const std::string& classifier);

}  // namespace ab
