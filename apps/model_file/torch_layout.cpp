// SPDX-License-Identifier: MIT
#include "apps/model_file/torch_layout.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string_view>

#include "engine/core/check.h"

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

namespace {

/// Parts that wrappers put into names at any place; no model of ours has a part of that name.
constexpr std::string_view kWrappers[] = {"module.", "_orig_mod.", "_fsdp_wrapped_module.",
                                          "_checkpoint_wrapped_module."};

/// Parts of torchvision's vision transformers that it renames itself when it reads its older files.
constexpr std::pair<std::string_view, std::string_view> kFormerParts[] = {{".mlp.linear_1.", ".mlp.0."},
                                                                          {".mlp.linear_2.", ".mlp.3."}};

using Rename = std::function<std::string(const std::string&)>;

/// Renames all tensors, unless two would have one name.
bool rename_all(TensorFile& content, const Rename& rename) {
  std::set<std::string> names;
  std::size_t count = 0;
  const auto look = [&](const auto& tensors) {
    for (const auto& tensor : tensors) names.insert(rename(tensor.name)), ++count;
  };
  look(content.tensors), look(content.unread);
  if (names.size() < count) return false;
  for (NamedTensor& tensor : content.tensors) tensor.name = rename(tensor.name);
  for (UnreadTensor& tensor : content.unread) tensor.name = rename(tensor.name);
  return true;
}

/// `name` without `part` wherever a part of it begins.
std::string without_part(std::string name, std::string_view part) {
  for (std::size_t at = 0; (at = name.find(part, at)) != std::string::npos;)
    if (at == 0 || name[at - 1] == '.') name.erase(at, part.size());
    else ++at;
  return name;
}

std::string with_present_parts(std::string name) {
  for (const auto& [former, present] : kFormerParts)
    if (const std::size_t at = name.find(former); at != std::string::npos) name.replace(at, former.size(), present);
  return name;
}

/// How many tensors of the model follow each text that ends in a dot, or nothing, in the names of the file.
std::map<std::string, std::size_t> count_by_prefix(const TensorFile& content, const FileShapes& wanted) {
  std::map<std::string, std::size_t> counts;
  for (const NamedTensor& tensor : content.tensors)
    for (std::size_t begin = 0; begin < tensor.name.size();) {
      if (wanted.contains(tensor.name.substr(begin))) ++counts[tensor.name.substr(0, begin)];
      const std::size_t dot = tensor.name.find('.', begin);
      if (dot == std::string::npos) break;
      begin = dot + 1;
    }
  return counts;
}

/// The text before the names of most tensors of the model; none where not even half of them are there.
std::string find_prefix(const TensorFile& content, const std::vector<FileShapes>& wanted, const std::string& file) {
  std::set<std::string> copies;
  std::size_t most = 0;
  for (const FileShapes& shapes : wanted)
    for (const auto& [prefix, count] : count_by_prefix(content, shapes)) {
      if (2 * count <= shapes.size() || count < most) continue;
      if (count > most) copies.clear();
      most = count;
      copies.insert(prefix);
    }
  AB_CHECK_KIND(checkpoint, copies.size() <= 1,
                "{} holds the tensors of the model {} times, as '{}…'; keep those of one", file, copies.size(),
                fmt::join(copies, "…' and '"));
  return copies.empty() ? "" : *copies.begin();
}

}  // namespace

std::vector<std::string> unwrap_names(TensorFile& content, const std::vector<FileShapes>& wanted,
                                      const std::string& file) {
  rename_all(content, with_present_parts);
  std::vector<std::string> left_out;
  for (const std::string_view part : kWrappers) {
    const auto has_part = [&](const std::string& name) { return without_part(name, part) != name; };
    if (std::ranges::any_of(content.tensors, has_part, &NamedTensor::name) &&
        rename_all(content, [&](const auto& name) { return without_part(name, part); }))
      left_out.emplace_back(part);
  }
  const std::string prefix = find_prefix(content, wanted, file);
  const auto without_prefix = [&](const std::string& name) {
    return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
  };
  if (!prefix.empty() && rename_all(content, without_prefix)) left_out.push_back(prefix);
  return left_out;
}

std::string rename_classifier(TensorFile& content, const FileShapes& wanted, const std::string& classifier) {
  const auto weight = wanted.find(classifier + "weight");
  if (weight == wanted.end() || content.find(weight->first) || weight->second.rank() != 2) return "";
  std::vector<const NamedTensor*> others;
  for (const NamedTensor& tensor : content.tensors)
    if (!wanted.contains(tensor.name) && tensor.value.rank() > 0 && is_floating(tensor.value.dtype()))
      others.push_back(&tensor);
  if (others.size() != 2) return "";
  std::sort(others.begin(), others.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
  const NamedTensor &bias = *others[0], &matrix = *others[1];
  if (!bias.name.ends_with("bias") || !matrix.name.ends_with("weight")) return "";
  const std::string layer = bias.name.substr(0, bias.name.size() - std::string_view("bias").size());
  if (matrix.name != layer + "weight" || matrix.value.rank() != 2 || matrix.value.dim(1) != weight->second[1])
    return "";
  rename_all(content, [&](const std::string& name) {
    return name.starts_with(layer) ? classifier + name.substr(layer.size()) : name;
  });
  return layer;
}

}  // namespace ab
