// SPDX-License-Identifier: MIT
#include "engine/io/file_format.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string_view>

namespace ab {
namespace {

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

}  // namespace

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

}  // namespace ab
