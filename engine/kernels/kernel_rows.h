#pragma once
// SPDX-License-Identifier: MIT
//
// A convolution, seen by rows of its kernel: y[p] = Σ_i z_i[p·stride + i·dilation − padding] over the rows i of the kernel,
// where z_i is what row i makes of each row of the image, a 1×kw convolution.

#include "engine/core/dtype.h"
#include "engine/core/tensor.h"

namespace ab {

/// The rows of a convolution's images and of its kernel.
struct KernelRows {
  std::int64_t height, kernel, stride, padding, dilation;
};

/// The gradient of every z_i, of y's, at every `apart`-th row of images, one image behind the other: zero where no output sees
/// a row of the image through row i.
/// dy: [N, H', W', O] -> [ceil(N · H / apart), W', O · kh], channel o·kh + i for output o
Tensor gradient_of_kernel_rows(const Tensor& dy, const KernelRows& rows, std::int64_t apart);

namespace kernels {

/// One row of an image per team, every `apart`-th.
template <class T> struct GradientOfKernelRows {
  const T* dy;
  T* dz;
  std::int64_t height, out_height, length;  ///< length: W' · O
  std::int64_t kernel, stride, padding, dilation, apart;

  template <class Team> AB_HD void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t n = row * apart / height, h = row * apart % height;
    for (std::int64_t i = 0; i < kernel; ++i) {
      const std::int64_t scaled = h + padding - i * dilation, p = scaled / stride;
      const bool seen = scaled >= 0 && scaled % stride == 0 && p < out_height;
      const T* from = dy + (n * out_height + (seen ? p : 0)) * length;
      T* to = dz + row * length * kernel + i;
      for (std::int64_t k = team.lane(); k < length; k += team.size()) to[k * kernel] = seen ? from[k] : T{};
    }
  }
};

}  // namespace kernels
}  // namespace ab
