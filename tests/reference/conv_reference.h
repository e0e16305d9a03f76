#pragma once
// SPDX-License-Identifier: MIT
//
// Convolution and matrix product by definition, in double: slow and obviously right, for tests.

#include <vector>

#include "engine/backend/backend.h"

namespace ab::reference {

using Values = std::vector<double>;

/// y[n, oy, ox, o] = b[o] + Σ x[n, oy·stride − padding + ky·dilation, …, i] · w[o, ky, kx, i]; `b` may be
/// empty.
inline Values conv2d(const Conv2dSpec& s, const Values& x, const Values& w, const Values& b) {
  const std::int64_t in_group = s.in_channels / s.groups, out_group = s.out_channels / s.groups;
  Values y;
  for (std::int64_t n = 0; n < s.batch; ++n)
    for (std::int64_t oy = 0; oy < s.out_height(); ++oy)
      for (std::int64_t ox = 0; ox < s.out_width(); ++ox)
        for (std::int64_t o = 0; o < s.out_channels; ++o) {
          double sum = b.empty() ? 0 : b[o];
          for (std::int64_t ky = 0; ky < s.kernel_h; ++ky)
            for (std::int64_t kx = 0; kx < s.kernel_w; ++kx) {
              const std::int64_t iy = oy * s.stride.h - s.padding.h + ky * s.dilation;
              const std::int64_t ix = ox * s.stride.w - s.padding.w + kx * s.dilation;
              if (iy < 0 || iy >= s.height || ix < 0 || ix >= s.width) continue;
              for (std::int64_t i = 0; i < in_group; ++i)
                sum += x[((n * s.height + iy) * s.width + ix) * s.in_channels + o / out_group * in_group + i] *
                       w[((o * s.kernel_h + ky) * s.kernel_w + kx) * in_group + i];
            }
          y.push_back(sum);
        }
  return y;
}

/// y = a b      a: [m, k], b: [k, n]
inline Values matmul(const Values& a, const Values& b, std::int64_t m, std::int64_t k, std::int64_t n) {
  Values y(m * n, 0.0);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t l = 0; l < k; ++l) y[i * n + j] += a[i * k + l] * b[l * n + j];
  return y;
}

/// y = x wᵀ + b      x: [m, k], w: [n, k], b: [n] or empty
inline Values linear(const Values& x, const Values& w, const Values& b, std::int64_t m, std::int64_t k,
                     std::int64_t n) {
  Values y;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t o = 0; o < n; ++o) {
      double sum = b.empty() ? 0 : b[o];
      for (std::int64_t l = 0; l < k; ++l) sum += x[i * k + l] * w[o * k + l];
      y.push_back(sum);
    }
  return y;
}

}  // namespace ab::reference
