// SPDX-License-Identifier: MIT
#include "apps/model_file/weight_names.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string_view>

#include "apps/model_file/torch_layout.h"
#include "engine/core/check.h"

namespace ab {
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

bool has_name(const TensorFile& content, const std::function<bool(const std::string&)>& wanted) {
  return std::any_of(content.tensors.begin(), content.tensors.end(), [&](const auto& t) { return wanted(t.name); });
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
    if (has_name(content, has_part) && rename_all(content, [&](const auto& name) { return without_part(name, part); }))
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
