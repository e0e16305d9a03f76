// SPDX-License-Identifier: MIT
#include "apps/model_file/torch_layout.h"

namespace ab {
namespace {

struct Renaming {
  const char* torchvision;
  const char* timm;
};

/// Parts of names; none of them occurs in a model where timm's name is torchvision's.
constexpr Renaming kRenamings[] = {
    // VGG
    {"classifier.0.", "pre_logits.fc1."},
    {"classifier.3.", "pre_logits.fc2."},
    {"classifier.6.", "head.fc."},
    // Vision transformers
    {"class_token", "cls_token"},
    {"conv_proj.", "patch_embed.proj."},
    {"encoder.pos_embedding", "pos_embed"},
    {"encoder.layers.encoder_layer_", "blocks."},
    {".ln_1.", ".norm1."},
    {".self_attention.in_proj_", ".attn.qkv."},
    {".self_attention.out_proj.", ".attn.proj."},
    {".ln_2.", ".norm2."},
    {".mlp.0.", ".mlp.fc1."},
    {".mlp.3.", ".mlp.fc2."},
    {"encoder.ln.", "norm."},
    {"heads.head.", "head."},
};

/// [batch, rows, columns] -> [batch, columns, rows], under the shape `result`
Tensor swap_last(const Tensor& t, std::int64_t batch, std::int64_t rows, std::int64_t columns, const Shape& result) {
  const Tensor swapped(result);
  for (std::int64_t b = 0; b < batch; ++b) {
    const float* from = t.data<float>() + b * rows * columns;
    float* to = swapped.data<float>() + b * rows * columns;
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c) to[c * rows + r] = from[r * columns + c];
  }
  return swapped;
}

}  // namespace

const char* word_of(TensorNames names) { return names == TensorNames::timm ? "timm" : "torchvision"; }

std::string torch_name(const std::string& name, TensorNames names) {
  std::string result = name;
  if (names == TensorNames::torchvision) return result;
  for (const Renaming& part : kRenamings)
    if (const std::size_t at = result.find(part.torchvision); at != std::string::npos)
      result.replace(at, std::string_view(part.torchvision).size(), part.timm);
  return result;
}

Shape torch_shape(const std::string& name, const Shape& shape, TensorNames names) {
  if (shape.rank() != 4) return shape;
  if (names == TensorNames::torchvision && name.starts_with("classifier."))
    return {shape[0], shape[1] * shape[2] * shape[3]};
  return {shape[0], shape[3], shape[1], shape[2]};
}

Tensor to_torch_order(const Tensor& value) {
  if (value.rank() != 4) return value;
  const Shape& s = value.shape();
  return swap_last(value, s[0], s[1] * s[2], s[3], {s[0], s[3], s[1], s[2]});
}

Tensor from_torch_order(const Tensor& stored, const Shape& shape) {
  if (shape.rank() != 4) return stored.view(shape);
  return swap_last(stored, shape[0], shape[3], shape[1] * shape[2], shape);
}

bool is_floating(DType dtype) { return dtype != DType::int64 && dtype != DType::uint8; }

Tensor in_float32(const Tensor& stored) {
  if (stored.dtype() == DType::float32) return stored;
  const std::vector<double> values = stored.to_doubles();
  return Tensor::from(std::vector<float>(values.begin(), values.end()), stored.shape());
}

Tensor transposed(const Tensor& matrix) {
  return swap_last(matrix, 1, matrix.dim(0), matrix.dim(1), {matrix.dim(1), matrix.dim(0)});
}

}  // namespace ab
