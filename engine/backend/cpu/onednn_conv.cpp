// SPDX-License-Identifier: MIT
//
// Convolutions by oneDNN. Activations are NHWC on both sides; the kernels want weights in blocks of channels, so the KRSC
// weights (or their gradient) pass through a reorder, which is small beside them.

#include <cstddef>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "engine/backend/cpu/conv.h"
#include "engine/backend/cpu/gemm.h"
#include "engine/backend/cpu/onednn.h"
#include "engine/core/threads.h"

namespace ab::cpu {
namespace {

using Desc = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;

/// Memory layouts and geometry of one convolution; `bias` is a zero descriptor when there is none.
struct OneDnnConvDesc {
  dnnl::memory::desc src, weights, dw, bias, dst;
  dnnl::memory::dims strides, dilations, padding;  ///< a dilation of 0 is a dense kernel, as oneDNN counts
};

using Forward = dnnl::convolution_forward;
using BackwardData = dnnl::convolution_backward_data;
using BackwardWeights = dnnl::convolution_backward_weights;

constexpr auto kDirect = dnnl::algorithm::convolution_direct;
constexpr auto kTraining = dnnl::prop_kind::forward_training;

#if DNNL_VERSION_MAJOR < 3

Forward::primitive_desc forward_desc(const dnnl::engine& engine, const OneDnnConvDesc& d) {
  const Forward::desc op(kTraining, kDirect, d.src, d.weights, d.bias, d.dst, d.strides, d.dilations, d.padding,
                         d.padding);
  return {op, user_scratchpad(), engine};
}

/// Both gradients take the same arguments.
template <class Gradient>
typename Gradient::primitive_desc backward_desc(const dnnl::engine& engine, const OneDnnConvDesc& d,
                                                const Desc& weights, const Forward::primitive_desc& hint) {
  const typename Gradient::desc op(kDirect, d.src, weights, d.dst, d.strides, d.dilations, d.padding, d.padding);
  return {op, user_scratchpad(), engine, hint};
}

#else

Forward::primitive_desc forward_desc(const dnnl::engine& engine, const OneDnnConvDesc& d) {
  return {engine, kTraining, kDirect,     d.src,     d.weights, d.bias,
          d.dst,  d.strides, d.dilations, d.padding, d.padding, user_scratchpad()};
}

/// Both gradients take the same arguments.
template <class Gradient>
typename Gradient::primitive_desc backward_desc(const dnnl::engine& engine, const OneDnnConvDesc& d,
                                                const Desc& weights, const Forward::primitive_desc& hint) {
  return {engine,    kDirect,   d.src, weights,          d.dst, d.strides, d.dilations,
          d.padding, d.padding, hint,  user_scratchpad()};
}

#endif

/// Everything that decides which compiled convolution a call needs.
struct OneDnnConvKey {
  Conv2dSpec spec;
  ConvDirection direction = ConvDirection::forward;
  Type type = Type::f32;  ///< of activations and weights; gradients of weights are float32
  bool bias = false;
  int threads = 1;  ///< the division of work is compiled in
  auto operator<=>(const OneDnnConvKey&) const = default;
};

Desc weights_desc(const Conv2dSpec& s, Type type, Tag whole, Tag grouped) {
  const std::int64_t in = s.in_channels / s.groups, out = s.out_channels / s.groups;
  if (s.groups == 1) return {{out, in, s.kernel_h, s.kernel_w}, type, whole};
  return {{s.groups, out, in, s.kernel_h, s.kernel_w}, type, grouped};
}

/// Activations are NHWC; oneDNN chooses the layout of the weights.
OneDnnConvDesc describe(const OneDnnConvKey& key) {
  const Conv2dSpec& s = key.spec;
  OneDnnConvDesc d;
  d.src = Desc({s.batch, s.in_channels, s.height, s.width}, key.type, Tag::nhwc);
  d.dst = Desc({s.batch, s.out_channels, s.out_height(), s.out_width()}, key.type, Tag::nhwc);
  if (key.bias) d.bias = Desc({s.out_channels}, key.type, Tag::a);
  d.strides = {s.stride.h, s.stride.w};
  d.dilations = {s.dilation - 1, s.dilation - 1};
  d.padding = {s.padding.h, s.padding.w};
  d.weights = weights_desc(s, key.type, Tag::any, Tag::any);
  d.dw = weights_desc(s, Type::f32, Tag::any, Tag::any);
  return d;
}

/// KRSC, the layout of the caller.
Desc caller_weights(const OneDnnConvKey& key) {
  const Type type = key.direction == ConvDirection::backward_weight ? Type::f32 : key.type;
  return weights_desc(key.spec, type, Tag::ohwi, Tag::gohwi);
}

class OneDnnConv {
 public:
  explicit OneDnnConv(const OneDnnConvKey& key);
  bool is_reference() const { return is_reference_; }
  std::size_t scratch_bytes() const { return scratchpad_offset_ + scratchpad_.get_desc().get_size(); }
  OneDnnConv(const OneDnnConv&) = delete;
  OneDnnConv& operator=(const OneDnnConv&) = delete;

  void run(const ConvTensors& t);

 private:
  /// Compiles, and returns the layout that oneDNN has chosen for the weights.
  Desc compile(const OneDnnConvDesc& d, ConvDirection direction) {
    const auto take = [&]<class Plan>(const Plan& plan, dnnl::primitive primitive) {
      primitive_ = std::move(primitive);
      scratchpad_ = unbound(plan.scratchpad_desc());
      is_reference_ = std::string_view(plan.impl_info_str()).starts_with("ref");
    };
    const Forward::primitive_desc forward = forward_desc(onednn_engine(), d);
    if (direction == ConvDirection::forward) return take(forward, Forward(forward)), forward.weights_desc();
    if (direction == ConvDirection::backward_data) {
      const auto backward = backward_desc<BackwardData>(onednn_engine(), d, d.weights, forward);
      return take(backward, BackwardData(backward)), backward.weights_desc();
    }
    const auto backward = backward_desc<BackwardWeights>(onednn_engine(), d, d.dw, forward);
    return take(backward, BackwardWeights(backward)), backward.diff_weights_desc();
  }

  dnnl::primitive primitive_;
  std::optional<dnnl::reorder> reorder_;        ///< of the weights, when the kernel wants a different layout
  bool writes_weights_, is_reference_ = false;  ///< the latter: oneDNN has plain loops only
  dnnl::memory x_, y_, bias_, weights_, inner_weights_, scratchpad_;
  std::size_t scratchpad_offset_ = 0;  ///< in the scratch buffer, behind the inner weights
  std::unordered_map<int, dnnl::memory> arguments_;
};

OneDnnConv::OneDnnConv(const OneDnnConvKey& key) : writes_weights_(key.direction == ConvDirection::backward_weight) {
  const OneDnnConvDesc desc = describe(key);
  const Desc chosen = compile(desc, key.direction);
  x_ = unbound(desc.src);
  y_ = unbound(desc.dst);
  weights_ = inner_weights_ = unbound(caller_weights(key));
  if (chosen != caller_weights(key)) {
    constexpr std::size_t kAlignment = 64;
    inner_weights_ = unbound(chosen);
    reorder_ = writes_weights_ ? dnnl::reorder(inner_weights_, weights_) : dnnl::reorder(weights_, inner_weights_);
    scratchpad_offset_ = (chosen.get_size() + kAlignment - 1) / kAlignment * kAlignment;
  }
  arguments_ = {{key.direction == ConvDirection::backward_data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, x_},
                {key.direction == ConvDirection::forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, y_},
                {writes_weights_ ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, inner_weights_},
                {DNNL_ARG_SCRATCHPAD, scratchpad_}};
  if (key.bias) {
    bias_ = unbound(desc.bias);
    arguments_.emplace(DNNL_ARG_BIAS, bias_);
  }
}

void OneDnnConv::run(const ConvTensors& t) {
  dnnl::stream& stream = onednn_stream();
  std::byte* buffer = scratch(scratch_bytes());
  x_.set_data_handle(t.x.raw());
  y_.set_data_handle(t.y.raw());
  weights_.set_data_handle(t.w.raw());
  if (reorder_) inner_weights_.set_data_handle(buffer);
  if (bias_) bias_.set_data_handle(t.bias.raw());
  scratchpad_.set_data_handle(buffer + scratchpad_offset_);

  if (reorder_ && !writes_weights_) reorder_->execute(stream, weights_, inner_weights_);
  primitive_.execute(stream, arguments_);
  if (reorder_ && writes_weights_) reorder_->execute(stream, inner_weights_, weights_);
}

/// Weight gradients that oneDNN writes beyond its scratchpad, up to a crash, an endless loop or wrong numbers: of strided 1×1
/// convolutions with fewer channels than its vectors hold (github.com/uxlfoundation/oneDNN, issue 6035, open in 2026).
bool onednn_overruns(const Conv2dSpec& s, ConvDirection direction) {
  constexpr std::int64_t kWidestVector = 16;
  return direction == ConvDirection::backward_weight && s.kernel_h == 1 && s.kernel_w == 1 && s.stride != 1 &&
         s.groups == 1 && s.in_channels < kWidestVector;
}

OneDnnConv& compiled(const OneDnnConvKey& key) {
  thread_local std::map<OneDnnConvKey, OneDnnConv> convs;
  if (convs.size() >= kMostCompiled && !convs.contains(key)) convs.clear();
  return convs.try_emplace(key, key).first->second;
}

}  // namespace

bool conv_direct(const Conv2dSpec& spec, ConvDirection direction, const ConvTensors& t) {
  const bool is_float = t.type() == DType::float32;
  if (onednn_overruns(spec, direction)) return conv_im2col(spec, direction, t);
  if (!is_float && !native_bfloat16()) return false;
  OneDnnConv& conv =
      compiled({spec, direction, is_float ? Type::f32 : Type::bf16, t.bias.defined(), compute_threads()});
  if (!is_float && conv.is_reference()) return false;
  conv.run(t);
  return true;
}

std::size_t direct_scratch_bytes(const Conv2dSpec& spec, ConvDirection direction, DType type) {
  if (onednn_overruns(spec, direction)) return im2col_scratch_bytes(spec);
  const Type of_onednn = type == DType::float32 ? Type::f32 : Type::bf16;
  return compiled({spec, direction, of_onednn, false, compute_threads()}).scratch_bytes();
}

}  // namespace ab::cpu
