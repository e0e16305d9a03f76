#pragma once
// SPDX-License-Identifier: MIT
//
// Tensors as PyTorch's libraries name them and lay them out. Names inside abtrain are torchvision's; timm
// calls parts of VGG and of vision transformers otherwise. Layouts differ in one point: a convolution is
// [O, kh, kw, I] here and [O, I, kh, kw] there. torchvision holds the first two layers of VGG's classifier,
// convolutions here and in timm, as matrices [O, I·kh·kw] of the same values.

#include <string>

#include "engine/core/tensor.h"

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

}  // namespace ab
