// SPDX-License-Identifier: MIT
//
// The JSON part of a safetensors file, read as a stream of events: nothing is built from it but the entries
// themselves, so a header can neither nest nor repeat its way to memory that it does not have the bytes for.
#include "engine/io/safetensors.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

namespace ab {
namespace {

struct DTypeName {
  std::string_view name;
  std::uint64_t bits;
  std::optional<DType> dtype = {};  // none: part of the format, but no Tensor of ours holds it
};

constexpr DTypeName kDTypes[] = {
    {"F32", 32, DType::float32},
    {"F64", 64, DType::float64},
    {"BF16", 16, DType::bfloat16},
    {"F16", 16, DType::float16},
    {"I64", 64, DType::int64},
    {"U8", 8, DType::uint8},
    {"I32", 32},
    {"U32", 32},
    {"U64", 64},
    {"I16", 16},
    {"U16", 16},
    {"I8", 8},
    {"BOOL", 8},
    {"C64", 64},
    {"F8_E4M3", 8},
    {"F8_E5M2", 8},
    {"F8_E8M0", 8},
    {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8},
    {"F6_E2M3", 6},
    {"F6_E3M2", 6},
    {"F4", 4},
};

/// A name from the file, safe to print: escaped and of bounded length.
std::string quoted(std::string name) {
  if (name.size() > 100) name = name.substr(0, 97) + "...";
  return nlohmann::json(name).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Receives the events of the JSON parser. Where we are is the depth and the two innermost keys:
/// depth 1: names · depth 2: the fields of a tensor, or of __metadata__ · depth 3: the numbers of a list.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(std::string file) : file_(std::move(file)) {}

  TensorFileHeader take() { return std::move(header_); }

  bool start_object(std::size_t) override {
    if (begins_ignored()) return true;
    if (depth_ == 0 || (depth_ == 1 && !in_list_)) {
      if (++depth_ == 2) fields_ = {};
      return true;
    }
    return unexpected("an object");
  }

  bool key(std::string& key) override {
    if (ignored_depth_ > 0) return true;
    if (depth_ == 1) {
      check(names_.insert(key).second, fmt::format("holds {} twice", quoted(key)));
      name_ = key;
      return true;
    }
    field_ = key;
    if (in_metadata()) {
      check(!header_.metadata.contains(key), fmt::format("holds {} twice in __metadata__", quoted(key)));
      return true;
    }
    ignores_next_ = key != "dtype" && key != "shape" && key != "data_offsets";  // as the reference does
    if (ignores_next_) return true;
    check_tensor(fields_.seen.insert(key).second, fmt::format("has the field \"{}\" twice", key));
    return true;
  }

  bool end_object() override {
    if (ends_ignored()) return true;
    if (depth_-- == 2 && !in_metadata()) finish_tensor();
    return true;
  }

  bool start_array(std::size_t) override {
    if (begins_ignored()) return true;
    if (depth_ != 2 || in_metadata() || field_ == "dtype" || in_list_) return unexpected("a list");
    in_list_ = true;
    return true;
  }
  bool end_array() override {
    if (ends_ignored()) return true;
    in_list_ = false;
    return true;
  }

  bool string(std::string& text) override {
    if (is_ignored()) return true;
    if (depth_ != 2 || in_list_) return unexpected("a string");
    if (in_metadata()) {
      header_.metadata[field_] = text;
      return true;
    }
    if (field_ != "dtype") return unexpected("a string");
    fields_.dtype = text;
    return true;
  }

  bool number_unsigned(std::uint64_t value) override {
    if (is_ignored()) return true;
    if (!in_list_) return unexpected("a number");
    std::vector<std::uint64_t>& list = field_ == "shape" ? fields_.shape : fields_.offsets;
    check_tensor(list.size() < 64, fmt::format("has more than 64 numbers in \"{}\"", field_));
    list.push_back(value);
    return true;
  }
  bool number_integer(std::int64_t) override { return is_ignored() || unexpected("a negative number"); }
  bool number_float(double, const std::string&) override {
    return is_ignored() || unexpected("a number that is not an integer below 2^64");
  }
  /// No metadata at all may be written as null.
  bool null() override { return is_ignored() || (in_metadata() && depth_ == 1) || unexpected("null"); }
  bool boolean(bool) override { return is_ignored() || unexpected("true or false"); }
  bool binary(nlohmann::json::binary_t&) override { return unexpected("binary data"); }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception&) override {
    check(false, fmt::format("is not valid JSON at byte {}", position));
    return false;
  }

 private:
  struct Fields {
    std::unordered_set<std::string> seen;
    std::string dtype;
    std::vector<std::uint64_t> shape, offsets;
  };

  bool in_metadata() const { return name_ == "__metadata__"; }

  /// Values of fields that the format does not know, however they nest, are passed over.
  bool begins_ignored() {
    if (!is_ignored()) return false;
    constexpr int kDeepest = 128;  // of the reference
    check_tensor(++ignored_depth_ <= kDeepest, "has a field that nests too deeply");
    return true;
  }
  bool ends_ignored() { return ignored_depth_ > 0 && ignored_depth_-- > 0; }
  bool is_ignored() {
    const bool ignored = ignores_next_ || ignored_depth_ > 0;
    ignores_next_ = false;
    return ignored;
  }

  void check(bool condition, const std::string& problem) const {
    AB_CHECK_KIND(checkpoint, condition, "{}: the header {}", file_, problem);
  }
  void check_tensor(bool condition, const std::string& problem) const {
    AB_CHECK_KIND(checkpoint, condition, "{}: tensor {} {}", file_, quoted(name_), problem);
  }

  /// A value in a place where the format has none of its kind.
  bool unexpected(const std::string& what) const {
    check(depth_ > 0, "is not a JSON object");
    if (in_metadata()) check(false, fmt::format("has {} in __metadata__, where only strings may be", what));
    check_tensor(depth_ == 2, fmt::format("is {} instead of an object", what));
    check_tensor(false, fmt::format("has {} in \"{}\"", what, field_));
    return false;
  }

  void finish_tensor() {
    for (const char* field : {"dtype", "shape", "data_offsets"})
      check_tensor(fields_.seen.contains(field), fmt::format("lacks the field \"{}\"", field));
    const auto known = std::find_if(std::begin(kDTypes), std::end(kDTypes),
                                    [&](const DTypeName& d) { return d.name == fields_.dtype; });
    check_tensor(known != std::end(kDTypes), fmt::format("has the unknown dtype {}", quoted(fields_.dtype)));
    check_tensor(fields_.offsets.size() == 2, "needs exactly two numbers in \"data_offsets\"");

    TensorEntry entry;
    entry.name = name_;
    entry.begin = fields_.offsets[0];
    entry.end = fields_.offsets[1];
    check_tensor(entry.begin <= entry.end, fmt::format("ends at {} before it begins at {}", entry.end, entry.begin));
    std::uint64_t bytes = known->bits;
    std::vector<std::int64_t> dims;
    for (const std::uint64_t dim : fields_.shape) {
      const bool wraps = __builtin_mul_overflow(bytes, dim, &bytes);
      check_tensor(!wraps && dim <= std::numeric_limits<std::int64_t>::max(),
                   "has a shape whose size overflows 64 bits");
      dims.push_back(static_cast<std::int64_t>(dim));
    }
    check_tensor(bytes % 8 == 0, fmt::format("of {} ends within a byte", fields_.dtype));
    bytes /= 8;
    check_tensor(entry.end - entry.begin == bytes,
                 fmt::format("has {} bytes of data, its shape [{}] of {} needs {}", entry.end - entry.begin,
                             fmt::join(dims, ", "), fields_.dtype, bytes));
    if (!known->dtype) entry.unread = fmt::format("has dtype {}", fields_.dtype);
    else if (dims.size() > Shape::kMaxRank) entry.unread = fmt::format("has {} dimensions", dims.size());
    if (entry.unread.empty()) {
      entry.dtype = *known->dtype;
      entry.shape = Shape(std::span<const std::int64_t>(dims));
    }
    header_.entries.push_back(std::move(entry));
  }

  std::string file_;
  TensorFileHeader header_;
  std::unordered_set<std::string> names_;
  std::string name_, field_;
  Fields fields_;
  int depth_ = 0;
  bool in_list_ = false;
  bool ignores_next_ = false;
  int ignored_depth_ = 0;
};

/// Together, the tensors cover the data exactly: no hole, no overlap, nothing after the last.
void check_coverage(std::vector<TensorEntry>& entries, std::uint64_t data_bytes, const std::string& file) {
  std::sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::uint64_t expected = 0;
  for (const TensorEntry& entry : entries) {
    AB_CHECK_KIND(checkpoint, entry.begin == expected, "{}: tensor {} begins at byte {} of the data, expected {} ({})",
                  file, quoted(entry.name), entry.begin, expected, entry.begin < expected ? "an overlap" : "a hole");
    AB_CHECK_KIND(checkpoint, entry.end <= data_bytes,
                  "{}: tensor {} ends at byte {} of the data, but the file holds only {}: it is truncated", file,
                  quoted(entry.name), entry.end, data_bytes);
    expected = entry.end;
  }
  AB_CHECK_KIND(checkpoint, expected == data_bytes, "{}: {} bytes follow the last tensor", file, data_bytes - expected);
}

}  // namespace

std::string_view safetensors_dtype_name(DType dtype) {
  for (const DTypeName& known : kDTypes)
    if (known.dtype == dtype) return known.name;
  throw Bug("a DType without a safetensors name");
}

TensorFileHeader parse_safetensors_header(std::span<const std::uint8_t> json, std::uint64_t data_bytes,
                                          const std::string& file) {
  HeaderReader reader(file);
  const bool complete = nlohmann::json::sax_parse(json.begin(), json.end(), &reader);
  AB_CHECK_KIND(checkpoint, complete, "{}: the header is not valid JSON", file);
  TensorFileHeader header = reader.take();
  check_coverage(header.entries, data_bytes, file);
  return header;
}

}  // namespace ab
