// SPDX-License-Identifier: MIT
#include "apps/model_file/stored_factors.h"

#include <nlohmann/json.hpp>
#include <optional>

namespace ab {
namespace {

constexpr const char* kKey = "factored";

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

bool factors_fit(const Tensor* a, const Tensor* b, const Shape& shape) {
  const std::int64_t out = shape[0], in = shape.numel() / shape[0];
  return a && b && a->rank() == 2 && b->rank() == 2 && a->dim(0) == std::max(out, in) &&
         b->dim(1) == std::min(out, in) && a->dim(1) == b->dim(0) && b->dim(0) >= 1 && b->dim(0) <= b->dim(1);
}

}  // namespace

std::string to_json(const FactoredWeights& weights) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [name, shape] : weights) json[name] = std::vector<std::int64_t>(shape.begin(), shape.end());
  return json.dump();
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
    AB_CHECK_KIND(checkpoint, factors_fit(content.find(name + ".a"), content.find(name + ".b"), *shape),
                  "{}: the factors of {} are missing or do not fit its shape {}", file, name, shape->str());
    weights[name] = *shape;
  }
  return weights;
}

}  // namespace ab
