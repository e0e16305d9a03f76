#pragma once
// SPDX-License-Identifier: MIT
//
// Descriptors of cuDNN's graph interface, as they were set.

#include <cudnn_graph.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/core/dtype.h"
#include "tests/ptx/faults.h"

namespace ptx {

struct Descriptor;
using DescriptorRef = std::shared_ptr<const Descriptor>;

struct Attribute {
  std::vector<std::uint8_t> bytes;   // of numbers and addresses
  std::vector<DescriptorRef> parts;  // of descriptors
  cudnnBackendAttributeType_t type{};
};

struct Descriptor {
  cudnnBackendDescriptorType_t type{};
  bool is_finalized = false;
  std::map<int, Attribute> attributes;

  const Attribute* find(int name) const {
    const auto it = attributes.find(name);
    return it == attributes.end() ? nullptr : &it->second;
  }
  const Attribute& at(int name) const {
    if (const Attribute* a = find(name)) return *a;
    give_up("cuDNN: a descriptor lacks attribute " + std::to_string(name));
  }
  template <class T> std::vector<T> all(int name) const {
    const std::vector<std::uint8_t>& bytes = at(name).bytes;
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  template <class T> T get(int name) const {
    T value{};
    const std::vector<std::uint8_t>& bytes = at(name).bytes;
    if (bytes.size() != sizeof value) give_up("cuDNN: an attribute of another size: " + std::to_string(name));
    std::memcpy(&value, bytes.data(), sizeof value);
    return value;
  }
  bool is_set(int name) const { return find(name) && get<bool>(name); }
  const DescriptorRef& part(int name) const { return at(name).parts.at(0); }
};

ab::DType cudnn_dtype(cudnnDataType_t type);

/// A tensor of a graph; its elements are doubles at their places in memory.
struct GraphTensor {
  explicit GraphTensor(const Descriptor& d);

  std::int64_t id, alignment;
  std::vector<std::int64_t> dims, strides;
  ab::DType dtype;
  bool is_virtual, is_by_value;

  std::int64_t count() const;
  std::int64_t extent() const;
  /// Where an element is; in a dimension of one, every index means that one.
  std::int64_t place(const std::vector<std::int64_t>& index) const;
};

}  // namespace ptx
