// SPDX-License-Identifier: MIT
#include "engine/io/manifest.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

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

// Reading a manifest: every field is checked before it is used.

namespace {

using nlohmann::json;

/// The fields of one JSON object of the manifest; every problem is an Error that names file and place.
class Fields {
 public:
  Fields(const json& object, std::string file, std::string place)
      : object_(object), file_(std::move(file)), place_(std::move(place)) {
    check(object.is_object(), "is not a JSON object");
  }

  void check(bool condition, const std::string& problem) const {
    AB_CHECK_KIND(checkpoint, condition, "{}: {} {}", file_, place_, problem);
  }

  const json& list(const char* name) const {
    const json& value = field(name);
    check(value.is_array(), fmt::format("has something else than a list in \"{}\"", name));
    return value;
  }
  const std::string& text(const char* name) const { return text_of(name, field(name)); }
  std::int64_t integer(const char* name) const { return integer_of(name, field(name)); }
  std::vector<std::string> texts(const char* name) const {
    std::vector<std::string> values;
    for (const json& value : list(name)) values.push_back(text_of(name, value));
    return values;
  }
  std::vector<std::int64_t> integers(const char* name) const {
    std::vector<std::int64_t> values;
    for (const json& value : list(name)) values.push_back(integer_of(name, value));
    return values;
  }

 private:
  const json& field(const char* name) const {
    const auto at = object_.find(name);
    check(at != object_.end(), fmt::format("lacks the field \"{}\"", name));
    return *at;
  }
  const std::string& text_of(const char* name, const json& value) const {
    check(value.is_string(), fmt::format("has something else than text in \"{}\"", name));
    return value.get_ref<const std::string&>();
  }
  std::int64_t integer_of(const char* name, const json& value) const {
    constexpr auto kLargest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    check(value.is_number_unsigned() && value.get<std::uint64_t>() <= kLargest,
          fmt::format("has something else than an integer from 0 in \"{}\"", name));
    return value.get<std::int64_t>();
  }

  const json& object_;
  std::string file_, place_;
};

std::optional<DType> dtype_named(const std::string& name) {
  for (const DType t : {DType::float32, DType::bfloat16, DType::float16, DType::float64, DType::int64, DType::uint8})
    if (name_of(t) == name) return t;
  return {};
}

/// The deepest a manifest nests: object, list of tensors, tensor, list of ranks.
constexpr int kMaxDepth = 4;

json parse_json(const std::string& text, const std::string& file) {
  const auto limit_depth = [&](int depth, json::parse_event_t event, json&) {
    const bool opens = event == json::parse_event_t::object_start || event == json::parse_event_t::array_start;
    AB_CHECK_KIND(checkpoint, !opens || depth < kMaxDepth, "{} is not a manifest: it nests too deeply", file);
    return true;
  };
  try {
    return json::parse(text, limit_depth);
  } catch (const json::parse_error& error) {
    throw Error(ErrorKind::checkpoint, fmt::format("{} is not valid JSON at byte {}", file, error.byte));
  } catch (const json::out_of_range&) {
    throw Error(ErrorKind::checkpoint, fmt::format("{} holds a number that is too large", file));
  }
}

StoredTensor parse_tensor(const json& line, std::size_t index, int world_size, const std::string& file) {
  const Fields fields(line, file, fmt::format("tensor {}", index));
  StoredTensor tensor;
  tensor.name = fields.text("name");
  fields.check(!tensor.name.empty() &&
                   std::all_of(tensor.name.begin(), tensor.name.end(), [](char c) { return ' ' < c && c <= '~'; }),
               "has a name that is empty or not of printable ASCII characters");
  const std::optional<DType> dtype = dtype_named(fields.text("dtype"));
  fields.check(dtype.has_value(), "has an unknown dtype");
  tensor.dtype = *dtype;
  const std::vector<std::int64_t> dims = fields.integers("shape");
  fields.check(dims.size() <= Shape::kMaxRank, fmt::format("has {} dimensions", dims.size()));
  tensor.shape = Shape(std::span<const std::int64_t>(dims));
  tensor.hash = fields.text("hash");
  std::int64_t previous = -1;
  for (const std::int64_t rank : fields.integers("ranks")) {
    fields.check(previous < rank && rank < world_size, "has ranks out of order or outside of the world");
    tensor.ranks.push_back(static_cast<int>(rank));
    previous = rank;
  }
  fields.check(!tensor.ranks.empty(), "belongs to no rank");
  return tensor;
}

}  // namespace

Manifest parse_manifest(const std::string& text, const std::string& file) {
  AB_CHECK_KIND(checkpoint, text.size() <= Manifest::kMaxBytes, "{} is larger than {} bytes", file,
                Manifest::kMaxBytes);
  const json content = parse_json(text, file);
  const Fields fields(content, file, "the manifest");
  fields.check(fields.text("format") == "abtrain checkpoint", "is not one of an abtrain checkpoint");
  const std::int64_t version = fields.integer("version");
  fields.check(version == Manifest::kVersion,
               fmt::format("has format version {}, this program reads version {}", version, Manifest::kVersion));

  Manifest manifest;
  manifest.step = fields.integer("step");
  manifest.values = fields.texts("values");
  fields.check(!manifest.values.empty() && manifest.values.size() <= std::numeric_limits<int>::max() &&
                   fields.integer("world_size") == static_cast<std::int64_t>(manifest.values.size()),
               "does not have one hash of values for each rank");
  std::set<int> holders;  // of the current name
  for (const json& line : fields.list("tensors")) {
    StoredTensor tensor = parse_tensor(line, manifest.tensors.size(), manifest.world_size(), file);
    const std::string previous = manifest.tensors.empty() ? "" : manifest.tensors.back().name;
    fields.check(previous <= tensor.name, "has tensors out of order");
    if (previous < tensor.name) holders.clear();
    for (const int rank : tensor.ranks)
      fields.check(holders.insert(rank).second, fmt::format("gives rank {} two tensors of one name", rank));
    manifest.tensors.push_back(std::move(tensor));
  }
  fields.check(to_json(manifest) == text, "is damaged: it is not what its hash was made of");
  return manifest;
}

}  // namespace ab
