// SPDX-License-Identifier: MIT
#include "apps/model_file.h"

#include <charconv>
#include <set>
#include <sstream>

#include "layers/models/models.h"
#include "layers/weight.h"

namespace ab {
namespace {

constexpr const char* kFormat = "abtrain";
constexpr int kFormatVersion = 1;

const std::string& metadata_value(const TensorFile& content, const char* key, const std::string& file) {
  const auto at = content.metadata.find(key);
  AB_CHECK_KIND(checkpoint, at != content.metadata.end(),
                "{}: its __metadata__ lacks \"{}\", so it is not a model that abtrain saved", file, key);
  return at->second;
}

std::int64_t metadata_integer(const TensorFile& content, const char* key, const std::string& file) {
  const std::string& text = metadata_value(content, key, file);
  std::int64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  AB_CHECK_KIND(checkpoint,
                problem == std::errc() && end == text.data() + text.size() && value > 0 && value < 65536,
                "{}: \"{}\" in its __metadata__ is '{}', not a sensible number", file, key, text);
  return value;
}

std::set<std::string> split_names(const std::string& text) {
  std::set<std::string> names;
  std::istringstream stream(text);
  for (std::string name; std::getline(stream, name, ',');) names.insert(name);
  return names;
}

std::string rest_name(const Weight& weight) { return weight.name() + ".rest"; }

/// Gives the weights named in `factored` factors with the rank that the file holds; values follow later.
void shape_factors(Inventory& inventory, const std::set<std::string>& factored, const TensorFile& content,
                   const std::string& file, Device device) {
  std::size_t found = 0;
  for (Weight* weight : inventory.weights) {
    if (!factored.contains(weight->name())) continue;
    ++found;
    const Tensor* outer = content.find(weight->outer().name);
    AB_CHECK_KIND(checkpoint,
                  outer && outer->rank() == 2 && outer->dim(0) == weight->out() && outer->dim(1) >= 1 &&
                      outer->dim(1) <= weight->n(),
                  "{}: the factors of {} are missing or do not fit its shape {}", file, weight->name(),
                  weight->shape().str());
    const std::int64_t r = outer->dim(1);
    const bool has_rest = content.find(rest_name(*weight)) != nullptr;
    weight->factorise(Tensor({weight->out(), r}, DType::float32, device),
                      Tensor({r, weight->in()}, DType::float32, device), Weight::Mode::train_a,
                      has_rest ? Tensor(weight->shape(), DType::float32, device) : Tensor());
  }
  AB_CHECK_KIND(checkpoint, found == factored.size(),
                "{}: it names factored weights that its model does not have", file);
}

std::vector<NamedTensor> tensors_of(Layer& model) {
  const Inventory inventory = inventory_of(model);
  std::vector<NamedTensor> tensors;
  for (const Param* param : inventory.params) tensors.push_back({param->name, param->value.value()});
  for (const Weight* weight : inventory.weights)
    if (weight->rest().defined()) tensors.push_back({rest_name(*weight), weight->rest()});
  for (const Buffer& buffer : inventory.buffers) tensors.push_back({buffer.name, buffer.value});
  return tensors;
}

}  // namespace

TensorFile model_to_file(Layer& model, const ModelInfo& info) {
  std::vector<std::string> factored;
  for (const Weight* weight : inventory_of(model).weights)
    if (weight->factored()) factored.push_back(weight->name());
  TensorFile content;
  content.metadata = {{"format", kFormat},
                      {"format_version", std::to_string(kFormatVersion)},
                      {"model", info.model},
                      {"dataset", info.dataset},
                      {"classes", std::to_string(info.classes)},
                      {"factored", fmt::format("{}", fmt::join(factored, ","))},
                      {"conv_layout", "KRSC"}};
  content.tensors = tensors_of(model);
  return content;
}

LoadedModel model_from_file(const TensorFile& content, const std::string& file, Device device) {
  AB_CHECK_KIND(checkpoint, metadata_value(content, "format", file) == kFormat,
                "{}: its format is '{}', expected '{}'", file, content.metadata.at("format"), kFormat);
  const std::int64_t version = metadata_integer(content, "format_version", file);
  AB_CHECK_KIND(checkpoint, version <= kFormatVersion,
                "{}: it has format version {}, this program reads up to {}; use a newer abtrain", file,
                version, kFormatVersion);
  LoadedModel loaded;
  loaded.info = {metadata_value(content, "model", file), metadata_value(content, "dataset", file),
                 metadata_integer(content, "classes", file)};
  const std::vector<std::string>& known = model_names();
  AB_CHECK_KIND(checkpoint, std::find(known.begin(), known.end(), loaded.info.model) != known.end(),
                "{}: it holds a model '{}', which this program does not have", file, loaded.info.model);
  loaded.model = make_model(loaded.info.model, loaded.info.classes, 0, device);
  Inventory inventory = inventory_of(*loaded.model);
  shape_factors(inventory, split_names(metadata_value(content, "factored", file)), content, file, device);

  std::vector<std::string> problems;
  std::set<std::string> wanted;
  for (const NamedTensor& tensor : tensors_of(*loaded.model)) {
    wanted.insert(tensor.name);
    const Tensor* stored = content.find(tensor.name);
    if (!stored)
      problems.push_back(fmt::format("{} is missing", tensor.name));
    else if (stored->shape() != tensor.value.shape() || stored->dtype() != tensor.value.dtype())
      problems.push_back(fmt::format("{} is {} {}, expected {} {}", tensor.name, name_of(stored->dtype()),
                                     stored->shape().str(), name_of(tensor.value.dtype()),
                                     tensor.value.shape().str()));
    else
      tensor.value.copy_from(*stored);
  }
  for (const NamedTensor& stored : content.tensors)
    if (!wanted.contains(stored.name)) problems.push_back(fmt::format("{} is not part of it", stored.name));
  AB_CHECK_KIND(checkpoint, problems.empty(), "{} does not fit the model {}: {}", file, loaded.info.model,
                fmt::join(problems, "; "));
  return loaded;
}

}  // namespace ab
