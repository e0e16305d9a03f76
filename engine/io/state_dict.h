#pragma once
// SPDX-License-Identifier: MIT
//
// The state that a rank needs to go on exactly where it stopped: tensors and small values under dotted names.
// Every part of a run adds its own with save(StateDict&) and takes it back with load(const StateDict&).

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/io/safetensors.h"

namespace ab {

class StateDict {
 public:
  /// Tensors may be on any device; they are shared, not copied. A name twice is a Bug.
  void put(const std::string& name, const Tensor& tensor);
  void put(const std::string& name, std::string text);
  void put(const std::string& name, std::int64_t value);
  /// Kept to the last bit.
  void put(const std::string& name, double value);

  bool has(const std::string& name) const;
  /// Throw Error(checkpoint) naming what is missing or malformed. Tensors are in host memory.
  Tensor tensor(const std::string& name) const;
  const std::string& text(const std::string& name) const;
  std::int64_t integer(const std::string& name) const;
  double number(const std::string& name) const;

  /// Everything, in the form in which it is stored: values are texts.
  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& values() const { return values_; }

 private:
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::string> values_;
};

/// Throws Error(numerics) naming the first tensor that holds NaN or infinity: nothing good can come of such a state.
/// Looks where the tensors are, and waits for the device.
void check_finite(const StateDict& state);

}  // namespace ab
