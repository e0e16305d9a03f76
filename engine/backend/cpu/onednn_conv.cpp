// SPDX-License-Identifier: MIT
#include "engine/backend/cpu/onednn_conv.h"

#include "engine/backend/cpu/thread_context.h"

namespace ab::cpu {
namespace {

using Desc = dnnl::memory::desc;
using Tag = dnnl::memory::format_tag;
constexpr auto kFloat = dnnl::memory::data_type::f32;
constexpr std::int64_t kBlock = 16;  // channels per block of oneDNN's nChw16c

/// The caller's layouts, or `any` where oneDNN may choose its own.
OneDnnConvDesc describe(const Conv2dSpec& s, bool with_bias, Tag activations, bool any_weights) {
  const Tag weights = any_weights ? Tag::any : s.groups == 1 ? Tag::ohwi : Tag::gohwi;
  const std::int64_t in = s.in_channels / s.groups, out = s.out_channels / s.groups;
  OneDnnConvDesc d;
  d.src = Desc({s.batch, s.in_channels, s.height, s.width}, kFloat, activations);
  d.weights = s.groups == 1 ? Desc({out, in, s.kernel_h, s.kernel_w}, kFloat, weights)
                            : Desc({s.groups, out, in, s.kernel_h, s.kernel_w}, kFloat, weights);
  d.dst = Desc({s.batch, s.out_channels, s.out_height(), s.out_width()}, kFloat, activations);
  if (with_bias) d.bias = Desc({s.out_channels}, kFloat, Tag::a);
  d.strides = {s.stride, s.stride};
  d.dilations = {s.dilation - 1, s.dilation - 1};
  d.padding = {s.padding, s.padding};
  return d;
}

}  // namespace

std::size_t OneDnnConvKeyHash::operator()(const OneDnnConvKey& key) const {
  const Conv2dSpec& s = key.spec;
  std::uint64_t hash = 0;
  for (const std::int64_t v : {s.batch, s.height, s.width, s.in_channels, s.out_channels, s.kernel_h, s.kernel_w,
                               s.stride, s.padding, s.dilation, s.groups, static_cast<std::int64_t>(key.direction),
                               static_cast<std::int64_t>(key.kernel), static_cast<std::int64_t>(key.bias),
                               static_cast<std::int64_t>(key.threads)})
    hash = (hash ^ static_cast<std::uint64_t>(v)) * 0x9E3779B97F4A7C15u + (hash >> 29);
  return hash;
}

std::unique_ptr<OneDnnConv> OneDnnConv::make(const dnnl::engine& engine, const OneDnnConvKey& key) {
  const bool nhwc = key.kernel == OneDnnKernel::direct;
  const auto algorithm = key.kernel == OneDnnKernel::winograd ? dnnl::algorithm::convolution_winograd
                                                              : dnnl::algorithm::convolution_direct;
  OneDnnConvPrimitive compiled = make_onednn_conv(engine, key.direction, algorithm,
                                                  describe(key.spec, key.bias, nhwc ? Tag::nhwc : Tag::any, true));
  if (!compiled) return nullptr;
  OneDnnConvDesc user = describe(key.spec, key.bias, Tag::nhwc, false);
  // With exactly one block of channels the blocked layout is NHWC under another name: no reorder.
  const OneDnnConvDesc blocked = describe(key.spec, key.bias, Tag::nChw16c, true);
  if (key.spec.in_channels == kBlock && compiled.src == blocked.src) user.src = compiled.src;
  if (key.spec.out_channels == kBlock && compiled.dst == blocked.dst) user.dst = compiled.dst;
  return std::unique_ptr<OneDnnConv>(new OneDnnConv(engine, key, user, std::move(compiled)));
}

OneDnnConv::OneDnnConv(const dnnl::engine& engine, const OneDnnConvKey& key, const OneDnnConvDesc& user,
                       OneDnnConvPrimitive&& compiled)
    : primitive_(std::move(compiled.primitive)),
      x_(make_operand(engine, user.src, compiled.src, key.direction == ConvDirection::backward_data)),
      w_(make_operand(engine, user.weights, compiled.weights, key.direction == ConvDirection::backward_weight)),
      y_(make_operand(engine, user.dst, compiled.dst, key.direction == ConvDirection::forward)),
      scratchpad_(compiled.scratchpad, engine, nullptr),
      direction_(key.direction),
      implementation_(std::move(compiled.implementation)) {
  scratchpad_offset_ = reserve(compiled.scratchpad.get_size());
  const bool backward_data = direction_ == ConvDirection::backward_data;
  const bool backward_weight = direction_ == ConvDirection::backward_weight;
  arguments_ = {{backward_data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, x_.inner},
                {backward_weight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, w_.inner},
                {direction_ == ConvDirection::forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, y_.inner},
                {DNNL_ARG_SCRATCHPAD, scratchpad_}};
  if (key.bias) {
    bias_ = dnnl::memory(user.bias, engine, nullptr);
    arguments_.emplace(DNNL_ARG_BIAS, bias_);
  }
}

std::size_t OneDnnConv::reserve(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  const std::size_t offset = scratch_bytes_;
  scratch_bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return offset;
}

OneDnnConv::Operand OneDnnConv::make_operand(const dnnl::engine& engine, const Desc& user, const Desc& inner,
                                             bool is_output) {
  Operand operand;
  operand.user = dnnl::memory(user, engine, nullptr);
  if (user == inner) {
    operand.inner = operand.user;
    return operand;
  }
  operand.inner = dnnl::memory(inner, engine, nullptr);
  operand.offset = reserve(inner.get_size());
  operand.reorder = is_output ? dnnl::reorder(operand.inner, operand.user)
                              : dnnl::reorder(operand.user, operand.inner);
  return operand;
}

void OneDnnConv::run(ThreadContext& context, float* x, float* w, const float* bias, float* y) {
  std::byte* scratch = context.scratch(scratch_bytes_);
  dnnl::stream stream = context.stream();
  const auto bind = [&](Operand& operand, float* data, bool is_input) {
    operand.user.set_data_handle(data);
    if (!operand.reorder) return;
    operand.inner.set_data_handle(scratch + operand.offset);
    if (is_input) operand.reorder->execute(stream, operand.user, operand.inner);
  };
  bind(x_, x, direction_ != ConvDirection::backward_data);
  bind(w_, w, direction_ != ConvDirection::backward_weight);
  bind(y_, y, direction_ != ConvDirection::forward);
  if (bias_) bias_.set_data_handle(const_cast<float*>(bias));
  scratchpad_.set_data_handle(scratch + scratchpad_offset_);

  primitive_.execute(stream, arguments_);
  Operand& output = direction_ == ConvDirection::forward         ? y_
                    : direction_ == ConvDirection::backward_data ? x_
                                                                 : w_;
  if (output.reorder) output.reorder->execute(stream, output.inner, output.user);
}

}  // namespace ab::cpu
