#pragma once
// SPDX-License-Identifier: MIT
//
// Reads the files that make_fixtures.py writes. A case "conv2d/stride2" consists of the tensors
// "conv2d/stride2/x", "…/y" and so on, and of options, a JSON object in the file's metadata.

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/autograd/var.h"
#include "engine/io/safetensors.h"

namespace ab::golden {

/// AB_SOURCE_DIR is defined by tests/CMakeLists.txt.
inline TensorFile read_fixtures(const std::string& file) {
  return read_safetensors(std::string(AB_SOURCE_DIR) + "/tests/golden/" + file);
}

/// int64 stays.
inline Tensor in_type(const Tensor& t, DType dtype) {
  if (t.dtype() == dtype || t.dtype() == DType::int64) return t.clone();
  const std::vector<double> values = t.to_doubles();
  if (dtype == DType::float64) return Tensor::from(values, t.shape());
  return Tensor::from(std::vector<float>(values.begin(), values.end()), t.shape());
}

/// The largest deviation is at most `tolerance` times the largest expected magnitude.
inline void expect_close(const Tensor& got, const Tensor& expected, double tolerance, const std::string& what) {
  ASSERT_TRUE(got.defined()) << what << " is missing";
  ASSERT_EQ(got.shape().str(), expected.shape().str()) << what;
  const std::vector<double> a = got.to_doubles(), b = expected.to_doubles();
  double largest = 0;
  for (const double v : b) largest = std::max(largest, std::abs(v));
  std::size_t worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(std::isfinite(a[i])) << what << " has " << a[i] << " at element " << i;
    if (std::abs(a[i] - b[i]) > std::abs(a[worst] - b[worst])) worst = i;
  }
  EXPECT_LE(std::abs(a[worst] - b[worst]), tolerance * largest)
      << what << ": element " << worst << " is " << a[worst] << ", PyTorch has " << b[worst]
      << ", the largest element is " << largest;
}

class Case {
 public:
  Case(const TensorFile& file, std::string name, DType dtype = DType::float32)
      : file_(file), name_(std::move(name)), dtype_(dtype), options_(nlohmann::json::parse(file.metadata.at(name_))) {}

  const std::string& name() const { return name_; }
  DType dtype() const { return dtype_; }
  /// An option, or a failed test when the case lacks it.
  template <class T> T option(const char* key) const { return options_.at(key).get<T>(); }

  bool has(const std::string& tensor) const { return file_.find(name_ + "/" + tensor) != nullptr; }
  /// A stored tensor in the type of this case (labels stay int64).
  Tensor tensor(const std::string& tensor) const {
    const Tensor* t = file_.find(name_ + "/" + tensor);
    AB_CHECK(t != nullptr, "the fixture {} has no tensor {}; run make_fixtures.py", name_, tensor);
    return in_type(*t, dtype_);
  }

 private:
  const TensorFile& file_;
  std::string name_;
  DType dtype_;
  nlohmann::json options_;
};

/// Names of all cases whose name starts with `group` and a slash.
inline std::vector<std::string> cases_of(const TensorFile& file, const std::string& group) {
  std::vector<std::string> names;
  for (const auto& [key, options] : file.metadata)
    if (key.starts_with(group + "/")) names.push_back(key);
  return names;
}

/// Σ y · dy: its backward pass sends dy into y.
inline Var weighted_sum(const Var& y, const Tensor& dy) {
  const std::vector<double> a = y.value().to_doubles(), b = dy.to_doubles();
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return record("weighted_sum", Tensor::scalar(sum, dy.dtype()), {y},
                [dy](const Tensor&) { return Gradients{dy.clone()}; });
}

}  // namespace ab::golden
