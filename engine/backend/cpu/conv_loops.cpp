// SPDX-License-Identifier: MIT
#include "engine/backend/cpu/conv.h"

#include <algorithm>

namespace ab::cpu {
namespace {

/// Calls f(x_offset, w_offset, y_offset, channels) for every pair of an input pixel of one group and an
/// output element of image n that the kernel connects; `channels` consecutive elements of x and w belong
/// together.
template <class F> void for_each_tap(const Conv2dSpec& s, std::int64_t n, std::int64_t k, const F& f) {
  const std::int64_t channels = s.in_channels / s.groups;
  const std::int64_t group = k / (s.out_channels / s.groups);
  for (std::int64_t p = 0; p < s.out_height(); ++p)
    for (std::int64_t q = 0; q < s.out_width(); ++q) {
      const std::int64_t y_offset = ((n * s.out_height() + p) * s.out_width() + q) * s.out_channels + k;
      for (std::int64_t r = 0; r < s.kernel_h; ++r)
        for (std::int64_t t = 0; t < s.kernel_w; ++t) {
          const std::int64_t h = p * s.stride.h + r * s.dilation - s.padding.h;
          const std::int64_t v = q * s.stride.w + t * s.dilation - s.padding.w;
          if (h < 0 || h >= s.height || v < 0 || v >= s.width) continue;
          f(((n * s.height + h) * s.width + v) * s.in_channels + group * channels,
            ((k * s.kernel_h + r) * s.kernel_w + t) * channels, y_offset, channels);
        }
    }
}

}  // namespace

template <class T> void conv2d_forward_loops(const Conv2dSpec& s, const T* x, const T* w, const T* bias, T* y) {
  const std::int64_t pixels = s.batch * s.out_height() * s.out_width();
  for (std::int64_t i = 0; i < pixels; ++i)
    for (std::int64_t k = 0; k < s.out_channels; ++k) y[i * s.out_channels + k] = bias ? bias[k] : T{0};
#pragma omp parallel for collapse(2) schedule(static)
  for (std::int64_t n = 0; n < s.batch; ++n)
    for (std::int64_t k = 0; k < s.out_channels; ++k)
      for_each_tap(s, n, k, [&](std::int64_t xi, std::int64_t wi, std::int64_t yi, std::int64_t channels) {
        T sum = 0;
        for (std::int64_t c = 0; c < channels; ++c) sum += x[xi + c] * w[wi + c];
        y[yi] += sum;
      });
}

template <class T> void conv2d_backward_data_loops(const Conv2dSpec& s, const T* dy, const T* w, T* dx) {
  std::fill_n(dx, s.batch * s.height * s.width * s.in_channels, T{0});
#pragma omp parallel for schedule(static)
  for (std::int64_t n = 0; n < s.batch; ++n)
    for (std::int64_t k = 0; k < s.out_channels; ++k)
      for_each_tap(s, n, k, [&](std::int64_t xi, std::int64_t wi, std::int64_t yi, std::int64_t channels) {
        for (std::int64_t c = 0; c < channels; ++c) dx[xi + c] += dy[yi] * w[wi + c];
      });
}

template <class T> void conv2d_backward_weight_loops(const Conv2dSpec& s, const T* dy, const T* x, T* dw) {
  std::fill_n(dw, s.out_channels * s.kernel_h * s.kernel_w * (s.in_channels / s.groups), T{0});
#pragma omp parallel for schedule(static)
  for (std::int64_t k = 0; k < s.out_channels; ++k)
    for (std::int64_t n = 0; n < s.batch; ++n)
      for_each_tap(s, n, k, [&](std::int64_t xi, std::int64_t wi, std::int64_t yi, std::int64_t channels) {
        for (std::int64_t c = 0; c < channels; ++c) dw[wi + c] += dy[yi] * x[xi + c];
      });
}

template void conv2d_forward_loops(const Conv2dSpec&, const float*, const float*, const float*, float*);
template void conv2d_forward_loops(const Conv2dSpec&, const double*, const double*, const double*, double*);
template void conv2d_backward_data_loops(const Conv2dSpec&, const float*, const float*, float*);
template void conv2d_backward_data_loops(const Conv2dSpec&, const double*, const double*, double*);
template void conv2d_backward_weight_loops(const Conv2dSpec&, const float*, const float*, float*);
template void conv2d_backward_weight_loops(const Conv2dSpec&, const double*, const double*, double*);

}  // namespace ab::cpu
