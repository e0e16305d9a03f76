// SPDX-License-Identifier: MIT
#include "apps/model_file/model_file.h"

#include <algorithm>
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

/// A sentence with names from a file: nothing in it commands a terminal.
void add_remark(std::string text, std::vector<std::string>& remarks) {
  for (char& c : text) c = c >= ' ' && c <= '~' ? c : '?';
  remarks.push_back(std::move(text));
}

/// PyTorch's count of batches, which nothing needs.
bool is_batch_count(const std::string& name) { return name.ends_with("num_batches_tracked"); }

/// The tensors in no slot that cannot be weights, with their types: "mask (has dtype BOOL)". The others, which
/// nobody stores for nothing, go to `superfluous`.
std::vector<std::string> ignored_tensors(const TensorFile& content, const std::set<std::string>& wanted,
                                         std::vector<std::string>& superfluous) {
  std::vector<std::string> ignored;
  for (const auto& [name, value] : content.tensors) {
    if (wanted.contains(name) || is_batch_count(name)) continue;
    if (is_floating(value.dtype()) && value.numel() > 0 && value.rank() > 0)
      superfluous.push_back(name + " is not part of it");
    else ignored.push_back(fmt::format("{} ({} {})", name, name_of(value.dtype()), value.shape().str()));
  }
  for (const UnreadTensor& tensor : content.unread)
    if (!wanted.contains(tensor.name) && !is_batch_count(tensor.name))
      ignored.push_back(fmt::format("{} ({})", tensor.name, tensor.reason));
  return ignored;
}

std::string unread_reason(const TensorFile& content, const std::string& name) {
  for (const UnreadTensor& tensor : content.unread)
    if (tensor.name == name) return tensor.reason + ", which abtrain does not hold; convert it to F32 or BF16";
  return "";
}

/// Fills all slots, or throws before any is touched. Adds a remark on tensors that are ignored.
void fill(const std::vector<Slot>& slots, const TensorFile& content, const std::string& file,
          std::vector<std::string>& remarks) {
  std::vector<std::string> problems, superfluous;
  std::set<std::string> wanted;
  std::vector<Tensor> values;
  for (const Slot& slot : slots) {
    wanted.insert(slot.name);
    const Tensor* stored = content.find(slot.name);
    if (!stored) {
      const std::string reason = unread_reason(content, slot.name);
      problems.push_back(slot.name + " " + (reason.empty() ? "is missing" : reason));
    } else if (stored->shape() != slot.shape || !is_floating(stored->dtype())) {
      problems.push_back(fmt::format("{} is {} {}, expected float32 {}", slot.name, name_of(stored->dtype()),
                                     stored->shape().str(), slot.shape.str()));
    } else {
      // After the conversion: a float64 may be beyond float32.
      AB_CHECK_KIND(checkpoint, all_finite(values.emplace_back(in_float32(*stored))),
                    "{}: tensor {} holds NaN or infinity, so this model is of no use; take an earlier one", file,
                    slot.name);
    }
  }
  const std::vector<std::string> ignored = ignored_tensors(content, wanted, superfluous);
  AB_CHECK_KIND(checkpoint, problems.empty() && superfluous.empty(), "{} does not fit the model: {}{}{}", file,
                some_of(problems), problems.empty() || superfluous.empty() ? "" : "; ", some_of(superfluous));
  if (!ignored.empty())
    add_remark(fmt::format("the model does not need {}, which {} ignored", some_of(ignored),
                           ignored.size() == 1 ? "is" : "are"),
               remarks);
  for (std::size_t i = 0; i < slots.size(); ++i) from_file(values[i], slots[i]);
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
  if (content.metadata.contains("interpolation")) {
    const std::string& word = metadata_value(content, "interpolation", file);
    AB_CHECK_KIND(checkpoint, word == "bicubic",
                  "{}: \"interpolation\" in its __metadata__ is '{}', expected 'bicubic'", file, word);
    info.framing.interpolation = Interpolation::bicubic;
  }
  if (content.metadata.contains("resize")) info.framing.shorter = metadata_number(content, "resize", 4096, file);
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

/// The metadata can be impossible (a ViT of 33 pixels): then it is the file that is wrong.
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

FileShapes file_shapes(Layer& model, TensorNames names) {
  FileShapes shapes;
  for (const Slot& slot : slots_of(model, names)) shapes.emplace(slot.name, slot.shape);
  return shapes;
}

/// The names that more of the model's tensors are found under.
TensorNames detect_names(const TensorFile& content, Layer& model) {
  const auto found = [&](TensorNames names) {
    const FileShapes shapes = file_shapes(model, names);
    return std::count_if(shapes.begin(), shapes.end(), [&](const auto& s) { return content.find(s.first) != nullptr; });
  };
  return found(TensorNames::timm) > found(TensorNames::torchvision) ? TensorNames::timm : TensorNames::torchvision;
}

/// Whether the shapes differ in the first dimension and in nothing else.
bool has_other_rows(const Shape& shape, const Shape& expected) {
  if (shape.rank() != expected.rank() || shape.rank() == 0) return false;
  return shape[0] != expected[0] && std::equal(shape.begin() + 1, shape.end(), expected.begin() + 1);
}

/// The prefix of the names of the last layer's tensors: "fc.".
std::string classifier_of(Layer& model, TensorNames names) {
  const std::string weight = torch_name(inventory_of(model).weights.back()->name(), names);
  return weight.substr(0, weight.size() - std::string_view("weight").size());
}

/// The same with the hidden layers of a classifier that has some, as VGG's: "classifier.".
std::string classifier_with_hidden_layers(Layer& model, TensorNames names) {
  const std::string last = classifier_of(model, names);
  return names == TensorNames::torchvision ? last.substr(0, last.find('.') + 1) : last;
}

/// Removes from `slots`, and from a file's content, a classifier that the file lacks or has for other classes, and
/// names its tensors.
void leave_out_classifier(Layer& model, TensorNames names, TensorFile& content, std::vector<Slot>& slots,
                          LoadedWeights& loaded) {
  const auto has_tensors = [&](const std::string& layer) {
    const auto is_of_layer = [&](const auto& t) { return t.name.starts_with(layer); };
    return std::ranges::any_of(content.tensors, is_of_layer) || std::ranges::any_of(content.unread, is_of_layer);
  };
  std::string layer = classifier_of(model, names);
  loaded.had_classifier = has_tensors(layer);
  if (const std::string whole = classifier_with_hidden_layers(model, names); !has_tensors(whole)) layer = whole;
  for (const Slot& slot : slots) {
    if (!slot.name.starts_with(layer)) continue;
    const Tensor* stored = content.find(slot.name);
    if (!loaded.had_classifier || (stored && has_other_rows(stored->shape(), slot.shape)))
      loaded.kept.push_back(slot.name);
  }
  const auto is_left_out = [&](const auto& t) {
    return std::find(loaded.kept.begin(), loaded.kept.end(), t.name) != loaded.kept.end();
  };
  std::erase_if(slots, is_left_out);
  std::erase_if(content.tensors, is_left_out);
}

/// Gives the tensors of another program's file the names that the model has in one of the libraries, and says so.
void rename_tensors(Layer& model, TensorFile& content, const std::string& file, std::vector<std::string>& remarks) {
  const std::vector<std::string> left_out = unwrap_names(
      content, {file_shapes(model, TensorNames::torchvision), file_shapes(model, TensorNames::timm)}, file);
  if (!left_out.empty())
    add_remark(fmt::format("its tensors are read without '{}' in their names", fmt::join(left_out, "' and '")),
               remarks);
  const TensorNames names = detect_names(content, model);
  const std::string classifier = classifier_of(model, names);
  const std::string former = rename_classifier(content, file_shapes(model, names), classifier);
  if (!former.empty())
    add_remark(fmt::format("its '{}' is taken for the classifier '{}'", former, classifier), remarks);
}

}  // namespace

bool describes_its_model(const TensorFile& content) {
  const auto format = content.metadata.find("format");
  return format != content.metadata.end() && format->second == kFormat;
}

std::int64_t stored_numbers(Layer& model) {
  std::int64_t count = 0;
  for (const Slot& slot : slots_of(model, TensorNames::torchvision)) count += slot.value.numel();
  return count;
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
  if (info.framing.interpolation == Interpolation::bicubic) content.metadata["interpolation"] = "bicubic";
  if (info.framing.shorter > 0) content.metadata["resize"] = std::to_string(info.framing.shorter);
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
  fill(slots_of(*loaded.model, names), content, file, loaded.remarks);
  return loaded;
}

LoadedWeights load_weights(Layer& model, const TensorFile& content, const std::string& file,
                           OtherClassifier other_classifier) {
  LoadedWeights loaded;
  TensorFile dense = content;
  if (describes_its_model(content)) {
    LoadedModel source = model_from_file(content, file);
    merge_factors(*source.model);
    dense = model_to_file(*source.model, source.info);
    loaded.remarks = std::move(source.remarks);
  } else {
    rename_tensors(model, dense, file, loaded.remarks);
  }
  const TensorNames names = detect_names(dense, model);
  std::vector<Slot> slots = slots_of(model, names);
  if (other_classifier == OtherClassifier::keep_own) leave_out_classifier(model, names, dense, slots, loaded);
  fill(slots, dense, file, loaded.remarks);
  return loaded;
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
