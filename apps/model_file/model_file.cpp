// SPDX-License-Identifier: MIT
#include "apps/model_file/model_file.h"

#include <charconv>
#include <set>

#include "apps/model_file/stored_factors.h"
#include "engine/kernels/reduce.h"
#include "layers/weight.h"

namespace ab {
namespace {

constexpr const char* kFormat = "abtrain";
// Version 1 held convolutions as [O, kh, kw, I]; 3 has spatial factors, and is written where there are some.
constexpr int kOldestFormat = 2, kFormatVersion = 3;

/// A tensor of a model, and the name and shape it has in a file.
struct Slot {
  std::string name;
  Shape shape;
  Tensor value;             ///< the model's own
  bool transposed = false;  ///< a factor of a weight that is wider than tall
};

std::vector<Slot> slots_of(Layer& model, TensorNames names) {
  std::vector<Slot> slots;
  const auto add = [&](const std::string& name, const Tensor& value) {
    slots.push_back({torch_name(name, names), torch_shape(name, value.shape(), names), value});
  };
  const Inventory inventory = inventory_of(model);
  for (const Param* param : inventory.params)
    if (!param->is_factor()) add(param->name, param->value.value());
  for (const Buffer& buffer : inventory.buffers) add(buffer.name, buffer.value);
  for (const Weight* w : inventory.weights) {
    if (!w->factored()) continue;
    const bool transposed = w->transposed();
    slots.push_back({torch_name(w->a().name, names), {w->m(), w->r()}, w->a().value.value(), transposed});
    slots.push_back({torch_name(w->b().name, names), {w->r(), w->n()}, w->b().value.value(), transposed});
    if (w->rest().defined()) add(w->name() + ".rest", w->rest());
  }
  return slots;
}

Tensor to_file(const Slot& slot) {
  const Tensor value = to_torch_order(slot.value.to(Device{}));
  return slot.transposed ? transposed(value.view({value.dim(0), -1})) : value.view(slot.shape);
}

void from_file(const Tensor& stored, const Slot& slot) {
  const Tensor value = slot.transposed ? transposed(stored) : stored;
  slot.value.copy_from(from_torch_order(value, slot.value.shape()));
}

bool is_floating(DType dtype) { return dtype != DType::int64 && dtype != DType::uint8; }

/// The first few of a list that may be as long as the model.
std::string some_of(std::vector<std::string> problems) {
  constexpr std::size_t kShown = 5;
  if (problems.size() > kShown) {
    const std::size_t more = problems.size() - kShown;
    problems.resize(kShown);
    problems.push_back(fmt::format("and {} more like that", more));
  }
  return fmt::format("{}", fmt::join(problems, "; "));
}

/// Fills all slots, or throws before any is touched. PyTorch's count of batches is not needed here.
void fill(const std::vector<Slot>& slots, const TensorFile& content, const std::string& file) {
  std::vector<std::string> problems, superfluous;
  std::set<std::string> wanted;
  for (const Slot& slot : slots) {
    wanted.insert(slot.name);
    const Tensor* stored = content.find(slot.name);
    if (!stored) {
      problems.push_back(slot.name + " is missing");
    } else if (stored->shape() != slot.shape || !is_floating(stored->dtype())) {
      problems.push_back(fmt::format("{} is {} {}, expected float32 {}", slot.name, name_of(stored->dtype()),
                                     stored->shape().str(), slot.shape.str()));
    } else {
      AB_CHECK_KIND(checkpoint, all_finite(*stored),
                    "{}: tensor {} holds NaN or infinity, so this model is of no use; take an earlier one", file,
                    slot.name);
    }
  }
  for (const NamedTensor& stored : content.tensors)
    if (!wanted.contains(stored.name) && !stored.name.ends_with(".num_batches_tracked"))
      superfluous.push_back(stored.name + " is not part of it");
  AB_CHECK_KIND(checkpoint, problems.empty() && superfluous.empty(), "{} does not fit the model: {}{}{}", file,
                some_of(problems), problems.empty() || superfluous.empty() ? "" : "; ", some_of(superfluous));
  for (const Slot& slot : slots) from_file(in_float32(*content.find(slot.name)), slot);
}

const std::string& metadata_value(const TensorFile& content, const char* key, const std::string& file) {
  const auto at = content.metadata.find(key);
  AB_CHECK_KIND(checkpoint, at != content.metadata.end(),
                "{}: its __metadata__ lacks \"{}\", so it is not a model that abtrain saved", file, key);
  return at->second;
}

/// A number in (0, largest].
template <class T> T metadata_number(const TensorFile& content, const char* key, T largest, const std::string& file) {
  const std::string& text = metadata_value(content, key, file);
  T value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  AB_CHECK_KIND(checkpoint, problem == std::errc() && end == text.data() + text.size() && value > 0 && value <= largest,
                "{}: \"{}\" in its __metadata__ is '{}', not a sensible number", file, key, text);
  return value;
}

TensorNames metadata_names(const TensorFile& content, const std::string& file) {
  const std::string& word = metadata_value(content, "names", file);
  for (const TensorNames names : {TensorNames::torchvision, TensorNames::timm})
    if (word == word_of(names)) return names;
  throw Error(ErrorKind::checkpoint,
              fmt::format("{}: its names are '{}', expected 'torchvision' or 'timm'", file, word));
}

ModelInfo metadata_info(const TensorFile& content, const std::string& file) {
  constexpr std::int64_t kLargest = 65535;
  ModelInfo info;
  info.dataset = metadata_value(content, "dataset", file);
  info.spec.name = metadata_value(content, "model", file);
  info.spec.classes = metadata_number(content, "classes", kLargest, file);
  info.spec.image_size = metadata_number(content, "image_size", kLargest, file);
  info.spec.width = metadata_number(content, "width", 16.0, file);
  const std::string& qkv_bias = metadata_value(content, "qkv_bias", file);
  AB_CHECK_KIND(checkpoint, qkv_bias == "true" || qkv_bias == "false",
                "{}: \"qkv_bias\" in its __metadata__ is '{}', expected 'true' or 'false'", file, qkv_bias);
  info.spec.qkv_bias = qkv_bias == "true";
  info.spec.draw = false;
  return info;
}

void check_format(const TensorFile& content, const std::string& file) {
  AB_CHECK_KIND(checkpoint, metadata_value(content, "format", file) == kFormat, "{}: its format is '{}', expected '{}'",
                file, content.metadata.at("format"), kFormat);
  const int version = metadata_number(content, "format_version", 65535, file);
  AB_CHECK_KIND(checkpoint, version >= kOldestFormat && version <= kFormatVersion,
                "{}: it has format version {}, this program reads versions {} and {}; {}", file, version, kOldestFormat,
                kFormatVersion,
                version > kFormatVersion ? "use a newer abtrain" : "load it with the abtrain that wrote it");
}

/// What the metadata says can be impossible (a ViT of 33 pixels): then it is the file that is wrong.
std::unique_ptr<Layer> build_described(const ModelSpec& spec, const std::string& file, Device device) {
  try {
    return make_model(spec, device);
  } catch (const Error& error) {
    throw Error(ErrorKind::checkpoint, fmt::format("{}: it describes a model that cannot be: {}", file, error.what()));
  }
}

/// Gives the weights that the file holds as factors such factors; values follow later.
void shape_factors(Layer& model, const TensorFile& content, TensorNames names, const std::string& file, Device device) {
  FactoredWeights factored = factored_weights(content, file);
  for (Weight* weight : inventory_of(model).weights) {
    const std::string name = torch_name(weight->name(), names);
    const auto at = factored.find(name);
    if (at == factored.end()) continue;
    const Shape expected = torch_shape(weight->name(), weight->shape(), names);
    AB_CHECK_KIND(checkpoint, at->second.shape == expected, "{}: the factors of {} make up {}, expected {}", file, name,
                  at->second.shape.str(), expected.str());
    weight->set_conv_factors(at->second.spatial ? ConvFactors::spatial : ConvFactors::channel);
    AB_CHECK_KIND(checkpoint, weight->rows() == at->second.rows(), "{}: {} cannot have spatial factors", file, name);
    const std::int64_t r = content.find(name + ".a")->dim(1);
    const bool has_rest = content.find(name + ".rest") != nullptr;
    weight->factorise(Tensor({weight->rows(), r}, DType::float32, device),
                      Tensor({r, weight->columns()}, DType::float32, device), Weight::Mode::train_a,
                      has_rest ? Tensor(weight->shape(), DType::float32, device) : Tensor());
    factored.erase(at);
  }
  AB_CHECK_KIND(checkpoint, factored.empty(), "{}: it holds factors of {}, which its model does not have", file,
                factored.empty() ? "" : factored.begin()->first);
}

/// The names that more of the model's tensors are found under.
TensorNames detect_names(const TensorFile& content, Layer& model) {
  const auto found = [&](TensorNames names) {
    const std::vector<Slot> slots = slots_of(model, names);
    return std::count_if(slots.begin(), slots.end(), [&](const Slot& s) { return content.find(s.name) != nullptr; });
  };
  return found(TensorNames::timm) > found(TensorNames::torchvision) ? TensorNames::timm : TensorNames::torchvision;
}

/// Whether the shapes differ in the first dimension and in nothing else.
bool has_other_rows(const Shape& shape, const Shape& expected) {
  if (shape.rank() != expected.rank() || shape.rank() == 0) return false;
  return shape[0] != expected[0] && std::equal(shape.begin() + 1, shape.end(), expected.begin() + 1);
}

/// A file's content less what `slots` must not take from it: a classifier of other classes. Such slots are
/// removed and their names returned.
std::vector<std::string> leave_out_classifier(Layer& model, TensorNames names, TensorFile& content,
                                              std::vector<Slot>& slots) {
  std::string layer = torch_name(inventory_of(model).weights.back()->name(), names);
  layer.resize(layer.size() - std::string_view("weight").size());
  std::vector<std::string> left_out;
  for (const Slot& slot : slots)
    if (const Tensor* stored = content.find(slot.name);
        stored && slot.name.starts_with(layer) && has_other_rows(stored->shape(), slot.shape))
      left_out.push_back(slot.name);
  const auto is_left_out = [&](const auto& t) {
    return std::find(left_out.begin(), left_out.end(), t.name) != left_out.end();
  };
  std::erase_if(slots, is_left_out);
  std::erase_if(content.tensors, is_left_out);
  return left_out;
}

}  // namespace

bool describes_its_model(const TensorFile& content) {
  const auto format = content.metadata.find("format");
  return format != content.metadata.end() && format->second == kFormat;
}

TensorFile model_to_file(Layer& model, const ModelInfo& info, TensorNames names) {
  FactoredWeights factored;
  for (const Weight* weight : inventory_of(model).weights)
    if (weight->factored())
      factored[torch_name(weight->name(), names)] = {torch_shape(weight->name(), weight->shape(), names),
                                                     weight->conv_factors() == ConvFactors::spatial};
  TensorFile content;
  content.metadata = {{"format", kFormat},
                      {"names", word_of(names)},
                      {"model", info.spec.name},
                      {"dataset", info.dataset},
                      {"classes", std::to_string(info.spec.classes)},
                      {"image_size", std::to_string(info.spec.image_size)},
                      {"width", fmt::format("{}", info.spec.width)},
                      {"qkv_bias", info.spec.qkv_bias ? "true" : "false"}};
  const bool has_spatial = describe(factored, content.metadata);
  content.metadata["format_version"] = std::to_string(has_spatial ? kFormatVersion : kOldestFormat);
  for (const Slot& slot : slots_of(model, names)) content.tensors.push_back({slot.name, to_file(slot)});
  return content;
}

LoadedModel model_from_file(const TensorFile& content, const std::string& file, Device device) {
  check_format(content, file);
  const TensorNames names = metadata_names(content, file);
  LoadedModel loaded;
  loaded.info = metadata_info(content, file);
  loaded.model = build_described(loaded.info.spec, file, device);
  shape_factors(*loaded.model, content, names, file, device);
  fill(slots_of(*loaded.model, names), content, file);
  return loaded;
}

std::vector<std::string> load_weights(Layer& model, const TensorFile& content, const std::string& file,
                                      OtherClasses other_classes) {
  TensorFile dense = content;
  if (describes_its_model(content)) {
    const LoadedModel source = model_from_file(content, file);
    merge_factors(*source.model);
    dense = model_to_file(*source.model, source.info);
  }
  const TensorNames names = detect_names(dense, model);
  std::vector<Slot> slots = slots_of(model, names);
  std::vector<std::string> left_out;
  if (other_classes == OtherClasses::keep_own) left_out = leave_out_classifier(model, names, dense, slots);
  fill(slots, dense, file);
  return left_out;
}

std::int64_t merge_factors(Layer& model) {
  const NoGradScope no_grad;
  std::int64_t merged = 0;
  for (Weight* weight : inventory_of(model).weights) {
    if (!weight->factored()) continue;
    weight->restore(weight->formed().value());
    ++merged;
  }
  return merged;
}

}  // namespace ab
