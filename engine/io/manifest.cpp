// SPDX-License-Identifier: MIT
#include "engine/io/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/core/hash.h"

namespace ab {
namespace {

std::string hash_of(const std::string& text) { return hash128(text.data(), text.size()); }

using nlohmann::json;

DType dtype_named(const std::string& name) {
  for (const DType t : {DType::float32, DType::bfloat16, DType::float16, DType::float64, DType::int64, DType::uint8})
    if (name_of(t) == name) return t;
  throw Error(ErrorKind::checkpoint, fmt::format("there is no dtype {}", name));
}

/// Text to a manifest whose fields have the right types.
Manifest parse_fields(const std::string& text) {
  constexpr int kMaxDepth = 4;  // object, list of tensors, tensor, list of ranks
  const json content = json::parse(text, [](int depth, json::parse_event_t event, const json& value) {
    const bool opens = event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    AB_CHECK_KIND(checkpoint, !opens || depth < kMaxDepth, "it nests too deeply");
    AB_CHECK_KIND(checkpoint, !value.is_number_float(), "it holds {}, which is no whole number", value.dump());
    return true;
  });
  AB_CHECK_KIND(checkpoint, content.at("format") == "abtrain checkpoint", "it is not one of an abtrain checkpoint");
  AB_CHECK_KIND(checkpoint, content.at("version") == Manifest::kVersion,
                "it has format version {}, this program reads version {}", content.at("version").dump(),
                Manifest::kVersion);
  Manifest manifest{content.at("step"), content.at("values"), {}};
  for (const json& line : content.at("tensors")) {
    const std::vector<std::int64_t> dims = line.at("shape");
    manifest.tensors.push_back({line.at("name"), dtype_named(line.at("dtype")),
                                Shape(std::span<const std::int64_t>(dims)), line.at("hash"), line.at("ranks")});
  }
  return manifest;
}

/// Whether merge() may have made it: names in order, of printable characters, ranks too, and no rank has a name twice.
bool may_be_merged(const Manifest& manifest) {
  std::string previous;
  std::set<int> holders;  // of the current name
  for (const StoredTensor& tensor : manifest.tensors) {
    const auto printable = [](char c) { return ' ' < c && c <= '~'; };
    if (tensor.name.empty() || tensor.name < previous || !std::ranges::all_of(tensor.name, printable)) return false;
    if (tensor.name != previous) holders.clear();
    previous = tensor.name;
    for (const std::int64_t dim : tensor.shape)
      if (dim < 0) return false;
    for (const int rank : tensor.ranks)
      if (rank < 0 || rank >= manifest.world_size() || !holders.insert(rank).second) return false;
    if (tensor.ranks.empty() || !std::ranges::is_sorted(tensor.ranks)) return false;
  }
  return manifest.step >= 0 && manifest.world_size() > 0;
}

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

Manifest parse_manifest(const std::string& text, const std::string& file) {
  try {
    AB_CHECK_KIND(checkpoint, text.size() <= Manifest::kMaxBytes, "it is larger than {} bytes", Manifest::kMaxBytes);
    const Manifest manifest = parse_fields(text);
    AB_CHECK_KIND(checkpoint, may_be_merged(manifest) && to_json(manifest) == text, "it is damaged");
    return manifest;
  } catch (const json::exception&) {
    throw Error(ErrorKind::checkpoint, fmt::format("the manifest {} cannot be used: it is damaged", file));
  } catch (const Error& error) {
    throw Error(ErrorKind::checkpoint, fmt::format("the manifest {} cannot be used: {}", file, error.what()));
  }
}

}  // namespace ab
