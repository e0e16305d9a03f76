// SPDX-License-Identifier: MIT
//
// cuDNN's convolutions and their gradients. Tensors are batch, channels, height, width; filters are channels of the
// result, channels of a group, height, width.
#include <array>

#include "tests/ptx/cudnn_execution.h"

namespace ptx {
namespace {

/// Names of an operation's attributes; the three kinds have their own.
struct Names {
  int convolution, x, w, y, alpha, beta;
};
constexpr Names kForward{
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
    CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
constexpr Names kData{
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
constexpr Names kFilter{
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
    CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};

struct Convolution {
  GraphTensor x, w, y;
  std::vector<std::int64_t> before, after, stride, dilation;  // of height and width; before, after: padding

  void check() const {
    for (std::size_t d = 0; d < 2; ++d) {
      const std::int64_t reach = (w.dims[2 + d] - 1) * dilation[d] + 1;
      if (y.dims[2 + d] != (x.dims[2 + d] + before[d] + after[d] - reach) / stride[d] + 1)
        report("cuDNN: the size of y does not follow from that of x");
    }
    if (x.dims[0] != y.dims[0] || w.dims[0] != y.dims[1] || x.dims[1] % w.dims[1] != 0 ||
        y.dims[1] % (x.dims[1] / w.dims[1]) != 0)
      give_up("cuDNN: channels or batches of a convolution that do not fit each other");
  }

  /// use(place in y, place in x, place in w) for what is multiplied where all three are at their first input channel.
  template <class F> void for_each_product(const F& use) const {
    const std::int64_t per_group = y.dims[1] / (x.dims[1] / w.dims[1]);
    for (std::int64_t n = 0; n < y.dims[0]; ++n)
      for (std::int64_t k = 0; k < y.dims[1]; ++k)
        for (std::int64_t i = 0; i < y.dims[2]; ++i)
          for (std::int64_t j = 0; j < y.dims[3]; ++j)
            for (std::int64_t r = 0; r < w.dims[2]; ++r)
              for (std::int64_t s = 0; s < w.dims[3]; ++s) {
                const std::int64_t h = i * stride[0] + r * dilation[0] - before[0];
                const std::int64_t v = j * stride[1] + s * dilation[1] - before[1];
                if (h < 0 || h >= x.dims[2] || v < 0 || v >= x.dims[3]) continue;
                use(place(y, n, k, i, j), place(x, n, k / per_group * w.dims[1], h, v), place(w, k, 0, r, s));
              }
  }
  static std::int64_t place(const GraphTensor& t, std::int64_t a, std::int64_t b, std::int64_t c, std::int64_t d) {
    return a * t.strides[0] + b * t.strides[1] + c * t.strides[2] + d * t.strides[3];
  }
};

}  // namespace

void CudnnExecution::convolve(const Descriptor& operation) {
  const bool is_forward = operation.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
  const bool is_data = operation.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
  const Names& names = is_forward ? kForward : is_data ? kData : kFilter;
  const Descriptor& geometry = *operation.part(names.convolution);
  const auto numbers = [&](int name) { return geometry.all<std::int64_t>(name); };
  const Convolution c{GraphTensor(*operation.part(names.x)),         GraphTensor(*operation.part(names.w)),
                      GraphTensor(*operation.part(names.y)),         numbers(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS),
                      numbers(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS), numbers(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES),
                      numbers(CUDNN_ATTR_CONVOLUTION_DILATIONS)};
  c.check();
  const bool is_double = geometry.get<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE) == CUDNN_DATA_DOUBLE;
  if (is_double != (c.x.dtype == ab::DType::float64))
    report("cuDNN: a convolution of doubles computes in double alone");
  for (const int name : {names.alpha, names.beta})
    if (operation.at(name).type != (is_double ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT))
      report("cuDNN: alpha or beta is not of the type that a convolution computes in");
  if (geometry.get<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE) != CUDNN_CROSS_CORRELATION)
    give_up("cuDNN: a convolution that flips its filter");

  const GraphTensor& result = is_forward ? c.y : is_data ? c.x : c.w;
  const Values x = is_data ? Values() : read(c.x), w = is_forward || is_data ? read(c.w) : Values();
  const Values y = is_forward ? Values() : read(c.y);
  double* const out = write(result).data();
  const std::int64_t channels = c.w.dims[1], x_step = c.x.strides[1], w_step = c.w.strides[1];
  c.for_each_product([&](std::int64_t at_y, std::int64_t at_x, std::int64_t at_w) {
    for (std::int64_t k = 0; k < channels; ++k) {
      const auto in_y = static_cast<std::size_t>(at_y), in_x = static_cast<std::size_t>(at_x + k * x_step),
                 in_w = static_cast<std::size_t>(at_w + k * w_step);
      if (is_forward) out[in_y] += x[in_x] * w[in_w];
      else if (is_data) out[in_x] += y[in_y] * w[in_w];
      else out[in_w] += y[in_y] * x[in_x];
    }
  });
}

}  // namespace ptx
