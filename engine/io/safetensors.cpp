// SPDX-License-Identifier: MIT
#include "engine/io/safetensors.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>
#include <tuple>

#include "engine/core/atomic_file.h"

namespace ab {
namespace {

/// So many bytes tell all formats apart.
constexpr std::size_t kTellingBytes = 4096;

constexpr const char *kUnpack = "unpack it first", *kSave = "save its tensors with safetensors.numpy.save_file";
constexpr const char* kTakeAnother = "take the model's .safetensors file, or a .pth file, which can be converted";

struct Signature {
  std::size_t offset;
  std::string_view bytes;
  const char *what, *remedy;
};

constexpr Signature kSignatures[] = {
    {0, "version https://git-lfs", "a pointer of Git LFS, which stands for the file", "fetch the file: git lfs pull"},
    {0, "\x1f\x8b", "compressed by gzip", kUnpack},
    {0, "BZh", "compressed by bzip2", kUnpack},
    {0, "\xfd\x37zXZ", "compressed by xz", kUnpack},
    {0, "\x28\xb5\x2f\xfd", "compressed by zstd", kUnpack},
    {0, "7z\xbc\xaf\x27\x1c", "an archive of 7-Zip", kUnpack},
    {257, "ustar", "a tar archive", kUnpack},
    {0, "\x93NUMPY", "an array of NumPy (.npy)", kSave},
    {0, "\x89HDF\r\n", "an HDF5 file, as Keras writes them", kSave},
    {0, "GGUF", "a GGUF file, as llama.cpp reads them", kTakeAnother},
    {4, "TFL3", "a model of TensorFlow Lite", kTakeAnother},
};

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

bool is_text(std::string_view bytes) {
  return !bytes.empty() && std::all_of(bytes.begin(), bytes.end(), [](char c) {
    return (c >= ' ' && c <= '~') || c == '\n' || c == '\r' || c == '\t';
  });
}

/// A line of Python that makes safetensors of what `load`, a function of PyTorch, gives for a file.
std::string conversion(const char* load, const char* then, const std::string& file) {
  std::string from = file, to = std::filesystem::path(file).replace_extension(".safetensors").string();
  if (file.find_first_of("'\"\\$`!\n") != std::string::npos) from = "FILE.pth", to = "FILE.safetensors";
  return fmt::format(
      "convert it: python3 -c \"import torch, safetensors.torch as s; m = {}('{}', 'cpu'){}; "
      "m = m.get('state_dict', m.get('model', m)); "
      "s.save_file({{k: v.contiguous().clone() for k, v in m.items() if torch.is_tensor(v)}}, '{}')\"",
      load, from, then, to);
}

std::string checkpoint_conversion(const std::string& file) { return conversion("torch.load", "", file); }

std::string zip_format(std::string_view bytes, const std::string& file) {
  // Both have data/0; torch.save writes data.pkl before it.
  const std::size_t pickle = bytes.find("data.pkl"), numbers = bytes.find("/data/0");
  if (has(bytes, "/code/__torch__") || numbers < pickle)
    return "a model of TorchScript; " + conversion("torch.jit.load", ".state_dict()", file);
  if (has(bytes, "data.pkl"))
    return "a checkpoint of PyTorch (a zip archive of torch.save); " + checkpoint_conversion(file);
  if (has(bytes, ".npy")) return fmt::format("an archive of NumPy (.npz); {}", kSave);
  return fmt::format("a zip archive; {}", kUnpack);
}

std::string text_format(std::string_view bytes) {
  if (bytes.starts_with("\xef\xbb\xbf")) bytes.remove_prefix(3);  // a byte order mark
  std::string text(bytes.substr(0, 1024));
  text.erase(0, text.find_first_not_of(" \t\r\n"));
  std::string lower = text;
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (lower.starts_with("<!doctype html") || lower.starts_with("<html") || lower.starts_with("<?xml"))
    return "a web page; download the file itself (where its page has /blob/ in the address, the file has /resolve/)";
  if (text.starts_with('{') && has(bytes, "\"weight_map\""))
    return "the index of a model that is in several files; join them in its folder: python3 -c \"import glob, safetensors.torch as s; "
           "s.save_file({k: v for f in glob.glob('model-*.safetensors') for k, v in s.load_file(f).items()}, "
           "'model.safetensors')\"";
  if (text.starts_with('{') || text.starts_with('[')) return "JSON text; give the file that holds the weights";
  text.resize(std::min({text.find_first_of("\r\n"), text.size(), std::size_t{60}}));
  for (char& c : text) c = c >= ' ' && c <= '~' ? c : '?';
  return fmt::format("text that begins with \"{}\"; give the file that holds the weights", text);
}

/// "a checkpoint of PyTorch (.pth); convert it …" for a file that people gave in place of a safetensors file and that begins with
/// `first`: its first kTellingBytes, or all it has. `file`: its name, for commands. Empty when the format is not known.
std::string foreign_format(std::span<const std::uint8_t> first, const std::string& file) {
  const std::string_view bytes(reinterpret_cast<const char*>(first.data()), first.size());
  if (bytes.empty()) return "empty; fetch it again";
  for (const Signature& known : kSignatures)
    if (bytes.size() > known.offset && bytes.substr(known.offset).starts_with(known.bytes))
      return fmt::format("{}; {}", known.what, known.remedy);
  if (bytes.starts_with("PK\x03\x04")) return zip_format(bytes, file);
  if (bytes.size() > 1 && bytes[0] == '\x80' && bytes[1] >= 2 && bytes[1] <= 5)
    return "a checkpoint of PyTorch (a pickle); " + checkpoint_conversion(file);
  // A protobuf whose first field is ir_version, then the producer, its version, a domain or the graph.
  if (bytes.size() > 2 && bytes[0] == '\x08' && bytes[1] >= 3 && bytes[1] <= 32 &&
      has("\x12\x1a\x22\x3a", bytes.substr(2, 1)))
    return fmt::format("a model of ONNX; {}", kTakeAnother);
  if (is_text(bytes.substr(bytes.starts_with("\xef\xbb\xbf") ? 3 : 0, 16))) return text_format(bytes);
  return "";
}

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

/// A line of the header.
struct Entry {
  std::string name;
  DType dtype = DType::float32;
  Shape shape;
  std::uint64_t begin = 0, end = 0;  // bytes, from the start of the data
  std::string unread;                // UnreadTensor::reason; empty for a tensor that is read
};

struct Header {
  std::map<std::string, std::string> metadata;
  std::vector<Entry> entries;  // by begin; together they cover the data exactly
};

/// A name from the file, safe to print: escaped and of bounded length.
std::string quoted(std::string name) {
  if (name.size() > 100) name = name.substr(0, 97) + "...";
  return nlohmann::json(name).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// Fields that the format does not know are passed over, as by the reference. Nothing is copied that may nest deeply.
Entry parse_entry(const std::string& name, const nlohmann::json& fields, const std::string& file) {
  const auto check = [&](bool condition, const std::string& problem) {
    AB_CHECK_KIND(checkpoint, condition, "{}: tensor {} {}", file, quoted(name), problem);
  };
  const auto field = [&](const char* key) -> const nlohmann::json& {
    check(fields.is_object() && fields.contains(key), fmt::format("lacks the field \"{}\"", key));
    return *fields.find(key);
  };
  const auto numbers = [&](const char* key) {
    const nlohmann::json& list = field(key);
    const auto is_number = [](const nlohmann::json& value) { return value.is_number_unsigned(); };
    check(list.is_array() && std::ranges::all_of(list, is_number),
          fmt::format("has something else than integers below 2^64 in \"{}\"", key));
    return list.get<std::vector<std::uint64_t>>();
  };
  check(field("dtype").is_string(), "has something else than a text in \"dtype\"");
  const auto dtype = field("dtype").get<std::string>();
  const auto known = std::ranges::find(kDTypes, dtype, &DTypeName::name);
  check(known != std::end(kDTypes), fmt::format("has the unknown dtype {}", quoted(dtype)));
  const std::vector<std::uint64_t> offsets = numbers("data_offsets"), shape = numbers("shape");
  check(offsets.size() == 2, "needs exactly two numbers in \"data_offsets\"");
  const std::uint64_t begin = offsets[0], end = offsets[1];
  check(begin <= end, fmt::format("ends at {} before it begins at {}", end, begin));
  std::uint64_t bytes = known->bits;
  for (const std::uint64_t dim : shape) {
    const bool wraps = __builtin_mul_overflow(bytes, dim, &bytes);
    check(!wraps && dim <= std::numeric_limits<std::int64_t>::max(), "has a shape whose size overflows 64 bits");
  }
  check(bytes % 8 == 0, fmt::format("of {} ends within a byte", dtype));
  check(end - begin == bytes / 8, fmt::format("has {} bytes of data, its shape [{}] of {} needs {}", end - begin,
                                              fmt::join(shape, ", "), dtype, bytes / 8));
  if (!known->dtype) return {name, {}, {}, begin, end, fmt::format("has dtype {}", dtype)};
  if (shape.size() > Shape::kMaxRank) return {name, {}, {}, begin, end, fmt::format("has {} dimensions", shape.size())};
  const std::vector<std::int64_t> dims(shape.begin(), shape.end());
  return {name, *known->dtype, Shape(std::span<const std::int64_t>(dims)), begin, end, ""};
}

/// Together, the tensors cover the data exactly: no hole, no overlap, nothing after the last.
void check_coverage(const std::vector<Entry>& entries, std::uint64_t data_bytes, const std::string& file) {
  std::uint64_t expected = 0;
  for (const Entry& entry : entries) {
    AB_CHECK_KIND(checkpoint, entry.begin == expected, "{}: tensor {} begins at byte {} of the data, expected {} ({})",
                  file, quoted(entry.name), entry.begin, expected, entry.begin < expected ? "an overlap" : "a hole");
    AB_CHECK_KIND(checkpoint, entry.end <= data_bytes,
                  "{}: tensor {} ends at byte {} of the data, but the file holds only {}: it is truncated", file,
                  quoted(entry.name), entry.end, data_bytes);
    expected = entry.end;
  }
  AB_CHECK_KIND(checkpoint, expected == data_bytes, "{}: {} bytes follow the last tensor", file, data_bytes - expected);
}

/// Without the fields that the format does not know, so that a header builds little more than it has bytes for.
nlohmann::json parse_json(const std::string& text, const std::string& file) {
  using Event = nlohmann::json::parse_event_t;
  const auto check = [&](bool condition, const std::string& problem) {
    AB_CHECK_KIND(checkpoint, condition, "{}: {}", file, problem);
  };
  std::set<std::string> names, fields;  // of the header; of a tensor
  std::string tensor;
  bool is_known = true;  // the field
  int numbers = 0;       // in its list
  const auto keep = [&](int depth, Event event, const nlohmann::json& value) {
    constexpr int kDeepest = 128, kMostNumbers = 64;  // the first of the reference
    check(depth > 0 || event == Event::object_start || event == Event::object_end, "the header is not a JSON object");
    check(depth != 1 || event != Event::array_start, fmt::format("tensor {} is no JSON object", quoted(tensor)));
    check(depth <= kDeepest, "the header nests too deeply");
    if (event == Event::key && depth <= 2) {
      const auto& key = value.get_ref<const std::string&>();
      if (depth == 1) tensor = key, fields.clear();
      check((depth == 1 ? names : fields).insert(key).second, fmt::format("the header holds {} twice", quoted(key)));
      is_known = depth == 1 || tensor == "__metadata__" || key == "dtype" || key == "shape" || key == "data_offsets";
      numbers = 0;
      return is_known;
    }
    if (is_known && depth > 2) {
      check(event == Event::value, fmt::format("tensor {} has a list of something else than numbers", quoted(tensor)));
      check(++numbers <= kMostNumbers, fmt::format("tensor {} has a list of too many numbers", quoted(tensor)));
    }
    return true;
  };
  try {
    return nlohmann::json::parse(text, keep);
  } catch (const nlohmann::json::exception&) {
    throw Error(ErrorKind::checkpoint, fmt::format("{}: the header is not valid JSON", file));
  }
}

/// `data_bytes` is what follows the JSON in the file.
Header parse_header(const std::string& text, std::uint64_t data_bytes, const std::string& file) {
  const nlohmann::json json = parse_json(text, file);
  Header header;
  for (const auto& [name, value] : json.items()) {
    if (name != "__metadata__") {
      header.entries.push_back(parse_entry(name, value, file));
      continue;
    }
    const auto is_text = [](const nlohmann::json& text) { return text.is_string(); };
    AB_CHECK_KIND(checkpoint, value.is_null() || (value.is_object() && std::ranges::all_of(value, is_text)),
                  "{}: in __metadata__ only strings may be", file);
    if (value.is_object()) header.metadata = value.get<std::map<std::string, std::string>>();
  }
  std::ranges::sort(header.entries, {}, [](const Entry& e) { return std::tie(e.begin, e.end, e.name); });
  check_coverage(header.entries, data_bytes, file);
  return header;
}

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian, and so is this reader");

constexpr std::uint64_t kPrefixBytes = 8;
constexpr std::uint64_t kMaxJsonBytes = 100'000'000;  // the limit of the reference implementation

/// Whether a file can be what it is taken for: a size that may be, and JSON after it.
bool looks_like_safetensors(std::span<const std::uint8_t> first) {
  std::uint64_t json_bytes;
  if (first.size() <= kPrefixBytes) return false;
  std::memcpy(&json_bytes, first.data(), kPrefixBytes);
  return json_bytes <= kMaxJsonBytes && first[kPrefixBytes] == '{';
}

/// The size of the JSON that the first 8 bytes announce.
std::uint64_t json_size(std::span<const std::uint8_t> first_bytes, std::uint64_t file_bytes, const std::string& file) {
  AB_CHECK_KIND(checkpoint, first_bytes.size() >= kPrefixBytes && file_bytes >= kPrefixBytes,
                "{} is not a safetensors file: it has {} bytes, the shortest possible header has 8", file, file_bytes);
  std::uint64_t json_bytes;
  std::memcpy(&json_bytes, first_bytes.data(), kPrefixBytes);
  AB_CHECK_KIND(
      checkpoint, json_bytes <= kMaxJsonBytes,
      "{} is not a safetensors file: such a file begins with the size of its header, and {} bytes are more than "
      "the {} allowed",
      file, json_bytes, kMaxJsonBytes);
  AB_CHECK_KIND(checkpoint, json_bytes <= file_bytes - kPrefixBytes,
                "{} is truncated or not a safetensors file: it announces a header of {} bytes and has {} in all", file,
                json_bytes, file_bytes);
  return json_bytes;
}

TensorFile read_tensor_file(std::istream& in, std::uint64_t file_bytes, const std::string& file) {
  const auto read_at = [&](std::uint64_t offset, void* to, std::size_t count) {
    in.seekg(static_cast<std::streamoff>(offset));
    in.read(static_cast<char*>(to), static_cast<std::streamsize>(count));
    AB_CHECK_KIND(checkpoint, in.good(), "cannot read {}: it ended early or was replaced while it was read", file);
  };
  std::vector<std::uint8_t> first(std::min<std::uint64_t>(file_bytes, kTellingBytes));
  read_at(0, first.data(), first.size());
  const std::string other = looks_like_safetensors(first) ? "" : foreign_format(first, file);
  AB_CHECK_KIND(checkpoint, other.empty(), "{} is not a safetensors file but {}", file, other);
  std::string json(json_size(first, file_bytes, file), ' ');
  read_at(kPrefixBytes, json.data(), json.size());
  const std::uint64_t data_begin = kPrefixBytes + json.size();
  Header header = parse_header(json, file_bytes - data_begin, file);

  TensorFile content;
  content.metadata = std::move(header.metadata);
  for (Entry& entry : header.entries) {
    if (!entry.unread.empty()) {
      content.unread.push_back({std::move(entry.name), std::move(entry.unread)});
      continue;
    }
    const Tensor value(entry.shape, entry.dtype);
    read_at(data_begin + entry.begin, value.raw(), value.bytes());
    content.tensors.push_back({std::move(entry.name), value});
  }
  return content;
}

std::string_view name_in_file(DType dtype) {
  return std::ranges::find(kDTypes, std::optional(dtype), &DTypeName::dtype)->name;
}

/// The JSON part for tensors in file order, padded so that the data begins at a multiple of 8.
std::string json_of(const TensorFile& content, const std::vector<const NamedTensor*>& order) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!content.metadata.empty()) json["__metadata__"] = content.metadata;
  std::uint64_t offset = 0;
  for (const NamedTensor* tensor : order) {
    const Shape& shape = tensor->value.shape();
    const std::uint64_t end = offset + tensor->value.bytes();
    json[tensor->name] = {{"dtype", name_in_file(tensor->value.dtype())},
                          {"shape", std::vector<std::int64_t>(shape.begin(), shape.end())},
                          {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = json.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace

const Tensor* TensorFile::find(const std::string& name) const {
  const auto at = std::find_if(tensors.begin(), tensors.end(), [&](const NamedTensor& t) { return t.name == name; });
  return at == tensors.end() ? nullptr : &at->value;
}

TensorFile parse_safetensors(std::span<const std::uint8_t> bytes, const std::string& file) {
  std::istringstream in(std::string(bytes.begin(), bytes.end()));
  return read_tensor_file(in, bytes.size(), file);
}

TensorFile read_safetensors(const std::string& path) {
  struct stat info {};
  AB_CHECK_KIND(checkpoint, ::stat(path.c_str(), &info) == 0, "cannot read {}: {}", path, std::strerror(errno));
  AB_CHECK_KIND(checkpoint, S_ISREG(info.st_mode), "cannot read {}: it is not a file", path);
  std::ifstream in(path, std::ios::binary);
  AB_CHECK_KIND(checkpoint, in.is_open(), "cannot read {}: {}", path, std::strerror(errno));
  return read_tensor_file(in, static_cast<std::uint64_t>(info.st_size), path);
}

void write_safetensors(const std::string& path, const TensorFile& content) {
  std::set<std::string> names;
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& tensor : content.tensors) {
    AB_CHECK(names.insert(tensor.name).second, "write_safetensors: {} would hold tensor \"{}\" twice", path,
             tensor.name);
    AB_CHECK(tensor.value.defined(), "write_safetensors: tensor \"{}\" for {} has no value", tensor.name, path);
    order.push_back(&tensor);
  }
  std::sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    const std::size_t size_a = size_of(a->value.dtype()), size_b = size_of(b->value.dtype());
    return size_a != size_b ? size_a > size_b : a->name < b->name;
  });

  const std::string json = json_of(content, order);
  const std::uint64_t json_bytes = json.size();
  AtomicFile file(path);
  file.write(&json_bytes, kPrefixBytes);
  file.write(json);
  for (const NamedTensor* tensor : order) {
    const Tensor on_host = tensor->value.to(Device{});
    file.write(on_host.raw(), on_host.bytes());
  }
  file.commit();
}

}  // namespace ab
