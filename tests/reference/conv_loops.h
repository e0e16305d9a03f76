#pragma once
// SPDX-License-Identifier: MIT
//
// Convolutions in float64 as plain loops, straight from the definition: fast kernels are compared with them.
//   y[n,p,q,k] = bias[k] + Σ_{r,s,c} x[n, p·stride + r·dilation − padding, q·stride + …, c] · w[k,r,s,c]

#include <algorithm>

#include "engine/backend/backend.h"

namespace ab::reference {

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

inline void conv_forward(const Conv2dSpec& s, const double* x, const double* w, const double* bias, double* y) {
  const std::int64_t pixels = s.batch * s.out_height() * s.out_width();
  for (std::int64_t i = 0; i < pixels; ++i)
    for (std::int64_t k = 0; k < s.out_channels; ++k) y[i * s.out_channels + k] = bias ? bias[k] : 0.0;
#pragma omp parallel for collapse(2) schedule(static)
  for (std::int64_t n = 0; n < s.batch; ++n)
    for (std::int64_t k = 0; k < s.out_channels; ++k)
      for_each_tap(s, n, k, [&](std::int64_t xi, std::int64_t wi, std::int64_t yi, std::int64_t channels) {
        double sum = 0;
        for (std::int64_t c = 0; c < channels; ++c) sum += x[xi + c] * w[wi + c];
        y[yi] += sum;
      });
}

inline void conv_backward_data(const Conv2dSpec& s, const double* dy, const double* w, double* dx) {
  std::fill_n(dx, s.batch * s.height * s.width * s.in_channels, 0.0);
#pragma omp parallel for schedule(static)
  for (std::int64_t n = 0; n < s.batch; ++n)
    for (std::int64_t k = 0; k < s.out_channels; ++k)
      for_each_tap(s, n, k, [&](std::int64_t xi, std::int64_t wi, std::int64_t yi, std::int64_t channels) {
        for (std::int64_t c = 0; c < channels; ++c) dx[xi + c] += dy[yi] * w[wi + c];
      });
}

inline void conv_backward_weight(const Conv2dSpec& s, const double* dy, const double* x, double* dw) {
  std::fill_n(dw, s.out_channels * s.kernel_h * s.kernel_w * (s.in_channels / s.groups), 0.0);
#pragma omp parallel for schedule(static)
  for (std::int64_t k = 0; k < s.out_channels; ++k)
    for (std::int64_t n = 0; n < s.batch; ++n)
      for_each_tap(s, n, k, [&](std::int64_t xi, std::int64_t wi, std::int64_t yi, std::int64_t channels) {
        for (std::int64_t c = 0; c < channels; ++c) dw[wi + c] += dy[yi] * x[xi + c];
      });
}

}  // namespace ab::reference
