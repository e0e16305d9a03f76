// SPDX-License-Identifier: MIT
#include "apps/model_file/stored_factors.h"

#include <nlohmann/json.hpp>
#include <optional>

namespace ab {
namespace {

constexpr const char *kKey = "factored", *kSpatialKey = "spatial";

/// A list of 2 to 6 positive numbers whose product fits 64 bits.
std::optional<Shape> shape_from(const nlohmann::json& list) {
  if (!list.is_array() || list.size() < 2 || list.size() > Shape::kMaxRank) return {};
  std::vector<std::int64_t> dims;
  std::int64_t elements = 1;
  for (const nlohmann::json& dim : list) {
    if (!dim.is_number_unsigned() || dim.get<std::uint64_t>() - 1 >= std::uint64_t{1} << 62) return {};
    dims.push_back(dim.get<std::int64_t>());
    if (__builtin_mul_overflow(elements, dims.back(), &elements)) return {};
  }
  return Shape(std::span<const std::int64_t>(dims));
}

bool factors_fit(const Tensor* a, const Tensor* b, const FactoredShape& weight) {
  return a && b && a->rank() == 2 && b->rank() == 2 && a->dim(0) == std::max(weight.rows(), weight.columns()) &&
         b->dim(1) == std::min(weight.rows(), weight.columns()) && a->dim(1) == b->dim(0) && b->dim(0) >= 1 &&
         b->dim(0) <= b->dim(1);
}

/// Weights with spatial factors, which convolutions among `weights` can have.
void mark_spatial(const TensorFile& content, const std::string& file, FactoredWeights& weights) {
  const auto text = content.metadata.find(kSpatialKey);
  if (text == content.metadata.end()) return;
  const auto json = nlohmann::json::parse(text->second, nullptr, /*allow_exceptions=*/false);
  AB_CHECK_KIND(checkpoint, json.is_array(), "{}: \"{}\" in its __metadata__ is not a JSON list", file, kSpatialKey);
  for (const nlohmann::json& name : json) {
    const auto weight = name.is_string() ? weights.find(name.get<std::string>()) : weights.end();
    AB_CHECK_KIND(checkpoint, weight != weights.end() && weight->second.shape.rank() == 4,
                  "{}: \"{}\" in its __metadata__ lists {}, which is no convolution that it holds factors of", file,
                  kSpatialKey, name.is_string() ? name.get<std::string>() : "an entry that is no name");
    weight->second.spatial = true;
  }
}

}  // namespace

bool describe(const FactoredWeights& weights, std::map<std::string, std::string>& metadata) {
  nlohmann::json shapes = nlohmann::json::object(), spatial = nlohmann::json::array();
  for (const auto& [name, weight] : weights) {
    shapes[name] = std::vector<std::int64_t>(weight.shape.begin(), weight.shape.end());
    if (weight.spatial) spatial.push_back(name);
  }
  metadata[kKey] = shapes.dump();
  if (!spatial.empty()) metadata[kSpatialKey] = spatial.dump();
  return !spatial.empty();
}

FactoredWeights factored_weights(const TensorFile& content, const std::string& file) {
  const auto text = content.metadata.find(kKey);
  if (text == content.metadata.end()) return {};
  const auto json = nlohmann::json::parse(text->second, nullptr, /*allow_exceptions=*/false);
  AB_CHECK_KIND(checkpoint, json.is_object(), "{}: \"{}\" in its __metadata__ is not a JSON object", file, kKey);
  FactoredWeights weights;
  for (const auto& [name, list] : json.items()) {
    const std::optional<Shape> shape = shape_from(list);
    AB_CHECK_KIND(checkpoint, shape, "{}: \"{}\" in its __metadata__ has no sensible shape for {}", file, kKey, name);
    weights[name] = {*shape};
  }
  mark_spatial(content, file, weights);
  for (const auto& [name, weight] : weights)
    AB_CHECK_KIND(checkpoint, factors_fit(content.find(name + ".a"), content.find(name + ".b"), weight),
                  "{}: the factors of {} are missing or do not fit its shape {}", file, name, weight.shape.str());
  return weights;
}

}  // namespace ab
