#pragma once
// SPDX-License-Identifier: MIT
//
// One convolution, planned by cuDNN for one device. A convolution knows its tensors by role: x and y are the
// activations before and after it and w is the filter, in every direction:
//   forward  (x, w) → y      backward_data  (y, w) → x      backward_weight  (y, x) → w
// NHWC activations and KRSC filters are given to cuDNN as strides. bfloat16 and float16 are stored, float32 is
// computed and accumulated; float32 is computed as such, without the shortened products of TF32 unless they are
// allowed.

#include <cstddef>
#include <optional>
#include <vector>

#include "engine/backend/backend.h"
#include "engine/backend/cuda/cudnn_graph.h"

namespace ab::cuda {

std::string_view name_of(ConvDirection direction);

/// Everything a plan depends on, besides the device.
struct CudnnConvKey {
  Conv2dSpec spec;
  ConvDirection direction = ConvDirection::forward;
  DType dtype = DType::float32;
  std::int64_t alignment = 16;  ///< bytes that divide the address of every tensor
  bool tf32 = false;            ///< float32: products may be those of TF32
  bool has_bias = false;        ///< forward only, as is the activation
  Activation activation = Activation::none;
  Activation grad = Activation::none;  ///< backward_data only: x is the gradient of z instead of that of act(z)
  PlanChoice choice = PlanChoice::heuristic;
  bool has_sums = false;  ///< forward without an activation: Σ y and Σ y² per channel too, where plans are timed

  bool has_epilogue() const { return has_bias || activation != Activation::none || grad != Activation::none; }
  auto operator<=>(const CudnnConvKey&) const = default;
};

/// The tensors of one call, on the device.
struct CudnnConvData {
  void* x = nullptr;
  void* w = nullptr;
  void* y = nullptr;
  void* bias = nullptr;   ///< null unless the key has one
  void* saved = nullptr;  ///< for the key's grad, what ActivationGrad saved; else null
  float* sums = nullptr;  ///< [2, out_channels]; null unless the key has them
};

class CudnnConv {
 public:
  /// Bias, activation and grad are part of the plan where cuDNN has one; otherwise the convolution is planned alone.
  /// Throws Error(communication) when cuDNN has no plan at all, or none as `choice` demands.
  CudnnConv(const CudnnConvKey& key, const CudnnTarget& target);

  /// Plans to choose from, best guess first: one, unless they are to be timed.
  std::size_t candidates() const { return candidates_.size(); }
  /// Drops the others.
  void keep(std::size_t i);

  /// Whether plan i does what the key says of bias, activation and grad; if not, that remains to be done.
  bool is_fused(std::size_t i = 0) const { return candidates_[i].is_fused; }
  /// Whether plan i writes the sums.
  bool has_sums(std::size_t i = 0) const { return candidates_[i].has_sums; }
  std::size_t workspace_bytes(std::size_t i = 0) const {
    return candidates_[i].plan ? candidates_[i].plan->workspace_bytes : 0;
  }
  bool is_deterministic(std::size_t i = 0) const {
    return !candidates_[i].plan || candidates_[i].plan->is_deterministic;
  }

  /// Whether candidate i is not a plan of cuDNN but the matrix product that a pointwise convolution is: the first one where
  /// the key has sums.
  bool is_product(std::size_t i = 0) const { return !candidates_[i].plan; }

  /// Not for a product. `workspace` has workspace_bytes(i). Runs on the stream of `handle`.
  void execute(cudnnHandle_t handle, const CudnnConvData& data, void* workspace, std::size_t i = 0) const;

 private:
  struct Candidate {
    std::optional<CudnnPlan> plan;
    bool is_fused, has_sums;
  };

  std::int64_t out_channels_;
  std::vector<CudnnDescriptor> graphs_;
  std::vector<Candidate> candidates_;  // never empty
};

}  // namespace ab::cuda
