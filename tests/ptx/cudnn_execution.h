#pragma once
// SPDX-License-Identifier: MIT
//
// What a plan of cuDNN computes: its graph, operation by operation, in double.

#include <map>
#include <vector>

#include "tests/ptx/cudnn_descriptor.h"

namespace ptx {

inline constexpr std::int64_t kCudnnWorkspaceBytes = 1000;  // that every plan asks for

class CudnnExecution {
 public:
  /// When the call is made: checks addresses, and reads the numbers that are given by value.
  CudnnExecution(const Descriptor& plan, const Descriptor& variant_pack);
  /// When its stream comes to it.
  void run();

 private:
  using Values = std::vector<double>;

  const Values& read(const GraphTensor& t);
  Values& write(const GraphTensor& t);
  void store(const GraphTensor& t);
  void compute(const Descriptor& operation);
  void convolve(const Descriptor& operation);
  void apply_pointwise(const Descriptor& operation);
  void apply_activation_gradient(const Descriptor& operation, cudnnPointwiseMode_t mode);
  void reduce(const Descriptor& operation);
  void multiply(const Descriptor& operation);
  void reshape(const Descriptor& operation);

  std::vector<DescriptorRef> operations_;
  std::map<std::int64_t, void*> addresses_;
  std::map<std::int64_t, double> numbers_;
  std::map<std::int64_t, Values> values_;
  std::map<std::int64_t, GraphTensor> results_;  // that go to memory
  void* workspace_;
};

}  // namespace ptx
