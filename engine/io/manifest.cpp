// SPDX-License-Identifier: MIT
#include "engine/io/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "engine/core/hash.h"

namespace ab {
namespace {

std::string hash_of(const std::string& text) { return hash128(text.data(), text.size()); }

}  // namespace

std::string hash_of(const std::map<std::string, std::string>& values) { return hash_of(nlohmann::json(values).dump()); }

std::string hash_of(const Tensor& tensor) {
  const Tensor on_host = tensor.to(Device{});
  return hash128(on_host.raw(), on_host.bytes());
}

Manifest describe(std::int64_t step, const StateDict& state) {
  Manifest manifest{step, {hash_of(state.values())}, {}};
  for (const auto& [name, tensor] : state.tensors())
    manifest.tensors.push_back({name, tensor.dtype(), tensor.shape(), hash_of(tensor), {0}});
  return manifest;
}

Manifest merge(const std::vector<Manifest>& of_ranks) {
  Manifest merged{of_ranks.front().step, {}, {}};
  std::map<std::tuple<std::string, DType, std::vector<std::int64_t>, std::string>, std::vector<int>> holders;
  for (const Manifest& one : of_ranks) {
    const int rank = merged.world_size();
    AB_CHECK_KIND(checkpoint, one.step == merged.step,
                  "a checkpoint needs all ranks at one step, but rank 0 saves step {} and rank {} step {}", merged.step,
                  rank, one.step);
    merged.values.push_back(one.values.front());
    for (const StoredTensor& t : one.tensors)
      holders[{t.name, t.dtype, {t.shape.begin(), t.shape.end()}, t.hash}].push_back(rank);
  }
  for (const auto& [what, ranks] : holders) {
    const auto& [name, dtype, dims, hash] = what;
    merged.tensors.push_back({name, dtype, Shape(std::span<const std::int64_t>(dims)), hash, ranks});
  }
  return merged;
}

std::string to_json(const Manifest& manifest) {
  std::string text = fmt::format(
      "{{\"format\":\"abtrain checkpoint\",\"version\":{},\"step\":{},\"world_size\":{},\n \"values\":{},\n"
      " \"tensors\":[",
      Manifest::kVersion, manifest.step, manifest.world_size(), nlohmann::json(manifest.values).dump());
  const char* separator = "\n  ";
  for (const StoredTensor& t : manifest.tensors) {
    const nlohmann::json line = {{"name", t.name},
                                 {"dtype", name_of(t.dtype)},
                                 {"shape", std::vector<std::int64_t>(t.shape.begin(), t.shape.end())},
                                 {"hash", t.hash},
                                 {"ranks", t.ranks}};
    text += separator + line.dump();
    separator = ",\n  ";
  }
  text += "\n ],\n";
  return text + fmt::format(" \"hash\":\"{}\"}}\n", hash_of(text));
}

}  // namespace ab
