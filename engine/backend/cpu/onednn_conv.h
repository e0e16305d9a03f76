#pragma once
// SPDX-License-Identifier: MIT
//
// A convolution compiled by oneDNN: the kernel itself, and reorders where it wants another layout than the
// NHWC activations and KRSC weights of its caller.

#include <cstddef>
#include <memory>
#include <optional>
#include <unordered_map>

#include "engine/backend/backend.h"
#include "engine/backend/cpu/onednn.h"

namespace ab::cpu {

class ThreadContext;

/// Which of oneDNN's kernels: the direct one on NHWC activations, or Winograd's on channel-blocked ones (3×3 with
/// stride 1 and padding 1 only).
enum class OneDnnKernel { direct, winograd };

/// Everything that decides which compiled convolution a call needs.
struct OneDnnConvKey {
  Conv2dSpec spec;
  ConvDirection direction = ConvDirection::forward;
  OneDnnKernel kernel = OneDnnKernel::direct;
  bool bias = false;
  int threads = 1;  ///< the work split is compiled in
  bool operator==(const OneDnnConvKey&) const = default;
};

struct OneDnnConvKeyHash {
  std::size_t operator()(const OneDnnConvKey& key) const;
};

/// Belongs to one thread.
class OneDnnConv {
 public:
  /// Null when oneDNN has no such implementation.
  static std::unique_ptr<OneDnnConv> make(const dnnl::engine& engine, const OneDnnConvKey& key);

  /// The direction decides which of the three tensors is written: y, x (as dx) or w (as dw).
  /// `bias` is read by forward convolutions made with one.
  void run(ThreadContext& context, float* x, float* w, const float* bias, float* y);

  /// oneDNN's name of the kernel, for benchmarks and logs.
  const std::string& implementation() const { return implementation_; }

 private:
  /// One tensor of the call: the caller's layout, and the kernel's where it differs.
  struct Operand {
    dnnl::memory user, inner;
    std::size_t offset = 0;                   ///< of the inner copy in the scratch buffer
    std::optional<dnnl::reorder> reorder;     ///< user to inner for inputs, inner to user for the output
  };

  OneDnnConv(const dnnl::engine& engine, const OneDnnConvKey& key, const OneDnnConvDesc& user,
             OneDnnConvPrimitive&& compiled);
  Operand make_operand(const dnnl::engine& engine, const dnnl::memory::desc& user,
                       const dnnl::memory::desc& inner, bool is_output);
  std::size_t reserve(std::size_t bytes);

  std::size_t scratch_bytes_ = 0;  ///< first, because making the operands adds to it
  dnnl::primitive primitive_;
  Operand x_, w_, y_;
  dnnl::memory bias_, scratchpad_;
  std::size_t scratchpad_offset_ = 0;
  ConvDirection direction_;
  std::string implementation_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

}  // namespace ab::cpu
