// SPDX-License-Identifier: MIT
//
// Convolutions and matrix products by oneDNN, in its versions 2 (which has operation descriptors) and 3: nothing else knows
// that there are two. Activations are NHWC on both sides; the kernels want weights in blocks of channels, so the KRSC weights
// (or their gradient) pass through a reorder, which is small beside them.

#include <oneapi/dnnl/dnnl.h>

#include <cstddef>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <unordered_map>

#include "engine/backend/cpu/conv.h"
#include "engine/backend/cpu/gemm.h"
#include "engine/core/threads.h"

namespace ab::cpu {
namespace {

/// Memory layouts and geometry of one convolution; `bias` is a zero descriptor when there is none.
struct OneDnnConvDesc {
  dnnl::memory::desc src, weights, bias, dst;
  dnnl::memory::dims strides, dilations, padding;  ///< a dilation of 0 is a dense kernel, as oneDNN counts
};

/// A compiled convolution, and the layouts that oneDNN has chosen where `any` was asked for.
struct OneDnnConvPrimitive {
  dnnl::primitive primitive;
  dnnl::memory::desc weights, scratchpad;
};

using Forward = dnnl::convolution_forward;
using BackwardData = dnnl::convolution_backward_data;
using BackwardWeights = dnnl::convolution_backward_weights;

constexpr auto kDirect = dnnl::algorithm::convolution_direct;
constexpr auto kTraining = dnnl::prop_kind::forward_training;

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

#if DNNL_VERSION_MAJOR < 3

Forward::primitive_desc forward_desc(const dnnl::engine& engine, const OneDnnConvDesc& d) {
  const Forward::desc op(kTraining, kDirect, d.src, d.weights, d.bias, d.dst, d.strides, d.dilations, d.padding,
                         d.padding);
  return {op, user_scratchpad(), engine};
}

/// Both gradients take the same arguments.
template <class Gradient>
typename Gradient::primitive_desc backward_desc(const dnnl::engine& engine, const OneDnnConvDesc& d,
                                                const Forward::primitive_desc& hint) {
  const typename Gradient::desc op(kDirect, d.src, d.weights, d.dst, d.strides, d.dilations, d.padding, d.padding);
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
                                                const Forward::primitive_desc& hint) {
  return {engine,    kDirect,   d.src, d.weights,        d.dst, d.strides, d.dilations,
          d.padding, d.padding, hint,  user_scratchpad()};
}

#endif

/// Compiles with a caller-owned scratchpad: oneDNN's own one is tied to the creating thread.
OneDnnConvPrimitive make_onednn_conv(const dnnl::engine& engine, ConvDirection direction, const OneDnnConvDesc& d) {
  const Forward::primitive_desc forward = forward_desc(engine, d);
  if (direction == ConvDirection::forward) return {Forward(forward), forward.weights_desc(), forward.scratchpad_desc()};
  if (direction == ConvDirection::backward_data) {
    const auto backward = backward_desc<BackwardData>(engine, d, forward);
    return {BackwardData(backward), backward.weights_desc(), backward.scratchpad_desc()};
  }
  const auto backward = backward_desc<BackwardWeights>(engine, d, forward);
  return {BackwardWeights(backward), backward.diff_weights_desc(), backward.scratchpad_desc()};
}

using Desc = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;
constexpr auto kFloat = dnnl::memory::data_type::f32;

/// Everything that decides which compiled convolution a call needs.
struct OneDnnConvKey {
  Conv2dSpec spec;
  ConvDirection direction = ConvDirection::forward;
  bool bias = false;
  int threads = 1;  ///< the division of work is compiled in
  bool operator==(const OneDnnConvKey&) const = default;
};

struct OneDnnConvKeyHash {
  std::size_t operator()(const OneDnnConvKey& key) const {
    const Conv2dSpec& s = key.spec;
    std::uint64_t hash = 0;
    for (const std::int64_t v :
         {s.batch, s.height, s.width, s.in_channels, s.out_channels, s.kernel_h, s.kernel_w, s.stride.h, s.stride.w,
          s.padding.h, s.padding.w, s.dilation, s.groups, std::int64_t{key.threads}, std::int64_t{key.bias},
          static_cast<std::int64_t>(key.direction)})
      hash = (hash ^ static_cast<std::uint64_t>(v)) * 0x9E3779B97F4A7C15u + (hash >> 29);
    return hash;
  }
};

/// Activations are NHWC; oneDNN chooses the layout of the weights.
OneDnnConvDesc describe(const OneDnnConvKey& key) {
  const Conv2dSpec& s = key.spec;
  OneDnnConvDesc d;
  d.src = Desc({s.batch, s.in_channels, s.height, s.width}, kFloat, Tag::nhwc);
  d.dst = Desc({s.batch, s.out_channels, s.out_height(), s.out_width()}, kFloat, Tag::nhwc);
  if (key.bias) d.bias = Desc({s.out_channels}, kFloat, Tag::a);
  d.strides = {s.stride.h, s.stride.w};
  d.dilations = {s.dilation - 1, s.dilation - 1};
  d.padding = {s.padding.h, s.padding.w};
  const std::int64_t in = s.in_channels / s.groups, out = s.out_channels / s.groups;
  d.weights = s.groups == 1 ? Desc({out, in, s.kernel_h, s.kernel_w}, kFloat, Tag::any)
                            : Desc({s.groups, out, in, s.kernel_h, s.kernel_w}, kFloat, Tag::any);
  return d;
}

/// KRSC, the layout of the caller.
Desc caller_weights(const Conv2dSpec& s) {
  const std::int64_t in = s.in_channels / s.groups, out = s.out_channels / s.groups;
  return s.groups == 1 ? Desc({out, in, s.kernel_h, s.kernel_w}, kFloat, Tag::ohwi)
                       : Desc({s.groups, out, in, s.kernel_h, s.kernel_w}, kFloat, Tag::gohwi);
}

class OneDnnConv {
 public:
  OneDnnConv(const dnnl::engine& engine, const OneDnnConvKey& key);
  OneDnnConv(const OneDnnConv&) = delete;
  OneDnnConv& operator=(const OneDnnConv&) = delete;

  void run(dnnl::stream& stream, const ConvTensors& t);

 private:
  dnnl::primitive primitive_;
  std::optional<dnnl::reorder> reorder_;  ///< of the weights, when the kernel wants a different layout
  bool writes_weights_;
  dnnl::memory x_, y_, bias_, weights_, inner_weights_, scratchpad_;
  std::size_t scratchpad_offset_ = 0;  ///< in the scratch buffer, behind the inner weights
  std::unordered_map<int, dnnl::memory> arguments_;
};

OneDnnConv::OneDnnConv(const dnnl::engine& engine, const OneDnnConvKey& key)
    : writes_weights_(key.direction == ConvDirection::backward_weight) {
  const OneDnnConvDesc desc = describe(key);
  OneDnnConvPrimitive compiled = make_onednn_conv(engine, key.direction, desc);
  primitive_ = std::move(compiled.primitive);
  const auto unbound = [&engine](const Desc& d) { return dnnl::memory(d, engine, nullptr); };
  x_ = unbound(desc.src);
  y_ = unbound(desc.dst);
  scratchpad_ = unbound(compiled.scratchpad);
  weights_ = inner_weights_ = unbound(caller_weights(key.spec));
  if (compiled.weights != caller_weights(key.spec)) {
    constexpr std::size_t kAlignment = 64;
    inner_weights_ = unbound(compiled.weights);
    reorder_ = writes_weights_ ? dnnl::reorder(inner_weights_, weights_) : dnnl::reorder(weights_, inner_weights_);
    scratchpad_offset_ = (compiled.weights.get_size() + kAlignment - 1) / kAlignment * kAlignment;
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

void OneDnnConv::run(dnnl::stream& stream, const ConvTensors& t) {
  std::byte* buffer = scratch(scratchpad_offset_ + scratchpad_.get_desc().get_size());
  x_.set_data_handle(t.x);
  y_.set_data_handle(t.y);
  weights_.set_data_handle(t.w);
  if (reorder_) inner_weights_.set_data_handle(buffer);
  if (bias_) bias_.set_data_handle(const_cast<float*>(t.bias));
  scratchpad_.set_data_handle(buffer + scratchpad_offset_);

  if (reorder_ && !writes_weights_) reorder_->execute(stream, weights_, inner_weights_);
  primitive_.execute(stream, arguments_);
  if (reorder_ && writes_weights_) reorder_->execute(stream, inner_weights_, weights_);
}

// One engine for the process: oneDNN shares compiled kernels between threads through it.
const dnnl::engine& process_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

/// The convolutions of a thread, compiled at first use.
struct ThreadConvs {
  dnnl::stream stream{process_engine()};
  std::unordered_map<OneDnnConvKey, OneDnnConv, OneDnnConvKeyHash> convs;
};

/// Weight gradients that oneDNN writes beyond its scratchpad, up to a crash, an endless loop or wrong numbers: of strided 1×1
/// convolutions with fewer channels than its vectors hold (github.com/uxlfoundation/oneDNN, issue 6035, open in 2026).
bool onednn_overruns(const Conv2dSpec& s, ConvDirection direction) {
  constexpr std::int64_t kWidestVector = 16;
  return direction == ConvDirection::backward_weight && s.kernel_h == 1 && s.kernel_w == 1 && s.stride != 1 &&
         s.groups == 1 && s.in_channels < kWidestVector;
}

}  // namespace

void conv_direct(const Conv2dSpec& spec, ConvDirection direction, const ConvTensors& t) {
  if (onednn_overruns(spec, direction)) {
    conv_im2col(spec, direction, t);
    return;
  }
  thread_local ThreadConvs thread;
  const OneDnnConvKey key{spec, direction, t.bias != nullptr, compute_threads()};
  thread.convs.try_emplace(key, process_engine(), key).first->second.run(thread.stream, t);
}

void sgemm_strided(bool transpose_a, bool transpose_b, std::int64_t m, std::int64_t n, std::int64_t k, float alpha,
                   const float* a, std::int64_t a_stride, const float* b, std::int64_t b_stride, float beta, float* c,
                   std::int64_t c_stride) {
  const dnnl_status_t status = dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k, alpha, a, a_stride,
                                          b, b_stride, beta, c, c_stride);
  AB_CHECK_KIND(communication, status != dnnl_out_of_memory,
                "out of memory in a product of matrices; lower --batch-size");
  AB_ASSERT(status == dnnl_success);
}

}  // namespace ab::cpu
