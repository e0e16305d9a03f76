// SPDX-License-Identifier: MIT
#include "engine/io/safetensors.h"

#include <sys/stat.h>
#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/core/atomic_file.h"
#include "engine/io/file_format.h"
#include "engine/io/safetensors_json.h"

namespace ab {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian, and so is this reader");

constexpr std::uint64_t kPrefixBytes = 8;
constexpr std::uint64_t kMaxJsonBytes = 100'000'000;  // the limit of the reference implementation

/// Copies `count` bytes at `offset` of the file to `to`, or throws.
using ReadAt = std::function<void(std::uint64_t offset, void* to, std::size_t count)>;

/// Whether a file can be what it is taken for: a size that may be, and JSON after it.
bool looks_like_safetensors(std::span<const std::uint8_t> first) {
  std::uint64_t json_bytes;
  if (first.size() <= kPrefixBytes) return false;
  std::memcpy(&json_bytes, first.data(), kPrefixBytes);
  return json_bytes <= kMaxJsonBytes && first[kPrefixBytes] == '{';
}

TensorFile read_tensor_file(std::uint64_t file_bytes, const ReadAt& read_at, const std::string& file) {
  std::vector<std::uint8_t> first(std::min<std::uint64_t>(file_bytes, kTellingBytes));
  read_at(0, first.data(), first.size());
  const std::string other = looks_like_safetensors(first) ? "" : foreign_format(first, file);
  AB_CHECK_KIND(checkpoint, other.empty(), "{} is not a safetensors file but {}", file, other);
  const std::uint64_t json_bytes = safetensors_json_size(first, file_bytes, file);
  std::vector<std::uint8_t> json(json_bytes);
  read_at(kPrefixBytes, json.data(), json.size());
  const std::uint64_t data_begin = kPrefixBytes + json_bytes;
  TensorFileHeader header = parse_safetensors_header(json, file_bytes - data_begin, file);

  TensorFile content;
  content.metadata = std::move(header.metadata);
  for (TensorEntry& entry : header.entries) {
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

/// The JSON part for tensors in file order, padded so that the data begins at a multiple of 8.
std::string json_of(const TensorFile& content, const std::vector<const NamedTensor*>& order) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!content.metadata.empty()) json["__metadata__"] = content.metadata;
  std::uint64_t offset = 0;
  for (const NamedTensor* tensor : order) {
    const Shape& shape = tensor->value.shape();
    const std::uint64_t end = offset + tensor->value.bytes();
    json[tensor->name] = {{"dtype", safetensors_dtype_name(tensor->value.dtype())},
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

std::uint64_t safetensors_json_size(std::span<const std::uint8_t> first_bytes, std::uint64_t file_bytes,
                                    const std::string& file) {
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

TensorFile parse_safetensors(std::span<const std::uint8_t> bytes, const std::string& file) {
  return read_tensor_file(
      bytes.size(),
      [&](std::uint64_t offset, void* to, std::size_t count) {
        if (count > 0) std::memcpy(to, bytes.data() + offset, count);
      },
      file);
}

TensorFile read_safetensors(const std::string& path) {
  struct stat info {};
  AB_CHECK_KIND(checkpoint, ::stat(path.c_str(), &info) == 0, "cannot read {}: {}", path, std::strerror(errno));
  AB_CHECK_KIND(checkpoint, S_ISREG(info.st_mode), "cannot read {}: it is not a file", path);
  std::ifstream in(path, std::ios::binary);
  AB_CHECK_KIND(checkpoint, in.is_open(), "cannot read {}: {}", path, std::strerror(errno));
  return read_tensor_file(
      static_cast<std::uint64_t>(info.st_size),
      [&](std::uint64_t offset, void* to, std::size_t count) {
        in.seekg(static_cast<std::streamoff>(offset));
        in.read(static_cast<char*>(to), static_cast<std::streamsize>(count));
        AB_CHECK_KIND(checkpoint, in.good(), "cannot read {}: it ended early or was replaced while it was read", path);
      },
      path);
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
