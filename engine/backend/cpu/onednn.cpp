// SPDX-License-Identifier: MIT
#include "engine/backend/cpu/onednn.h"

namespace ab::cpu {
namespace {

dnnl::primitive_attr user_scratchpad() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

#if DNNL_VERSION_MAJOR < 3

using Forward = dnnl::convolution_forward;
using BackwardData = dnnl::convolution_backward_data;
using BackwardWeights = dnnl::convolution_backward_weights;

Forward::primitive_desc forward_desc(const dnnl::engine& engine, dnnl::algorithm algorithm,
                                     const OneDnnConvDesc& d) {
  const Forward::desc op(dnnl::prop_kind::forward_training, algorithm, d.src, d.weights, d.bias, d.dst, d.strides,
                         d.dilations, d.padding, d.padding);
  return {op, user_scratchpad(), engine, true};
}

BackwardData::primitive_desc backward_data_desc(const dnnl::engine& engine, dnnl::algorithm algorithm,
                                                const OneDnnConvDesc& d, const Forward::primitive_desc& hint) {
  const BackwardData::desc op(algorithm, d.src, d.weights, d.dst, d.strides, d.dilations, d.padding, d.padding);
  return {op, user_scratchpad(), engine, hint, true};
}

BackwardWeights::primitive_desc backward_weights_desc(const dnnl::engine& engine, dnnl::algorithm algorithm,
                                                      const OneDnnConvDesc& d,
                                                      const Forward::primitive_desc& hint) {
  const BackwardWeights::desc op(algorithm, d.src, d.weights, d.dst, d.strides, d.dilations, d.padding,
                                 d.padding);
  return {op, user_scratchpad(), engine, hint, true};
}

#else

using Forward = dnnl::convolution_forward;
using BackwardData = dnnl::convolution_backward_data;
using BackwardWeights = dnnl::convolution_backward_weights;

Forward::primitive_desc forward_desc(const dnnl::engine& engine, dnnl::algorithm algorithm,
                                     const OneDnnConvDesc& d) {
  return {engine,      dnnl::prop_kind::forward_training, algorithm, d.src, d.weights, d.bias, d.dst, d.strides,
          d.dilations, d.padding, d.padding, user_scratchpad(), true};
}

BackwardData::primitive_desc backward_data_desc(const dnnl::engine& engine, dnnl::algorithm algorithm,
                                                const OneDnnConvDesc& d, const Forward::primitive_desc& hint) {
  return {engine,      algorithm, d.src,     d.weights, d.dst,             d.strides,
          d.dilations, d.padding, d.padding, hint,      user_scratchpad(), true};
}

BackwardWeights::primitive_desc backward_weights_desc(const dnnl::engine& engine, dnnl::algorithm algorithm,
                                                      const OneDnnConvDesc& d,
                                                      const Forward::primitive_desc& hint) {
  return {engine,      algorithm, d.src,     d.weights, d.dst,             d.strides,
          d.dilations, d.padding, d.padding, hint,      user_scratchpad(), true};
}

#endif

}  // namespace

OneDnnConvPrimitive make_onednn_conv(const dnnl::engine& engine, ConvDirection direction,
                                     dnnl::algorithm algorithm, const OneDnnConvDesc& d) {
  const Forward::primitive_desc forward = forward_desc(engine, algorithm, d);
  if (!forward.get(true)) return {};
  if (direction == ConvDirection::forward) {
    return {Forward(forward), forward.src_desc(), forward.weights_desc(), forward.dst_desc(),
            forward.scratchpad_desc(), forward.impl_info_str()};
  }
  if (direction == ConvDirection::backward_data) {
    const BackwardData::primitive_desc pd = backward_data_desc(engine, algorithm, d, forward);
    if (!pd.get(true)) return {};
    return {BackwardData(pd), pd.diff_src_desc(), pd.weights_desc(), pd.diff_dst_desc(), pd.scratchpad_desc(),
            pd.impl_info_str()};
  }
  const BackwardWeights::primitive_desc pd = backward_weights_desc(engine, algorithm, d, forward);
  if (!pd.get(true)) return {};
  return {BackwardWeights(pd), pd.src_desc(), pd.diff_weights_desc(), pd.diff_dst_desc(), pd.scratchpad_desc(),
          pd.impl_info_str()};
}

}  // namespace ab::cpu
