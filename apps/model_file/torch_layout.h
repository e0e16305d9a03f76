#pragma once
// SPDX-License-Identifier: MIT
//
// Tensors as PyTorch's libraries name them and lay them out. Names inside abtrain are torchvision's; timm
// calls parts of VGG and of vision transformers otherwise. Layouts differ in one point: a convolution is
// [O, kh, kw, I] here and [O, I, kh, kw] there. torchvision holds the first two layers of VGG's classifier,
// convolutions here and in timm, as matrices [O, I·kh·kw] of the same values.

#include <map>
#include <string>
#include <vector>

#include "engine/core/tensor.h"
#include "engine/io/safetensors.h"

namespace ab {

enum class TensorNames { torchvision, timm };

/// "torchvision" or "timm".
const char* word_of(TensorNames names);

/// The name of a parameter, buffer or factor ("conv1.weight", "conv1.weight.a") in a file with those names.
std::string torch_name(const std::string& name, TensorNames names);
/// The shape there of a tensor that has `shape` here.
Shape torch_shape(const std::string& name, const Shape& shape, TensorNames names);

/// The elements of a float32 host tensor in PyTorch's order: [O, kh, kw, I] -> [O, I, kh, kw]. A tensor that
/// is not of four dimensions has the same order there, and is returned as it is.
Tensor to_torch_order(const Tensor& value);
/// The way back: elements in PyTorch's order to a tensor of `shape`, which is ours.
Tensor from_torch_order(const Tensor& stored, const Shape& shape);

/// Whether its elements are of a floating type, as those of weights are.
bool is_floating(DType dtype);
/// The values of a host tensor as float32; the tensor itself when they are.
Tensor in_float32(const Tensor& stored);

/// [rows, columns] -> [columns, rows]; float32, in host memory.
Tensor transposed(const Tensor& matrix);

// From the names that tensors have in the files of other programs to those that a model has in torchvision or timm:
// without what wrappers put before or between them, and with the classifier where the model has its own.

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
