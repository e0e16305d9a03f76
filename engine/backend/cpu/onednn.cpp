// SPDX-License-Identifier: MIT
#include "engine/backend/cpu/onednn.h"

namespace ab::cpu {
namespace {

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

}  // namespace

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

}  // namespace ab::cpu
