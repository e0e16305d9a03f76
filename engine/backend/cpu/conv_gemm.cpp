// SPDX-License-Identifier: MIT
#include "engine/backend/cpu/conv.h"

#include <algorithm>

#include "engine/backend/cpu/gemm.h"
#include "engine/device/exec.h"

namespace ab::cpu {
namespace {

// Patches of as many images as fit here are multiplied at a time: they stay in the last-level cache.
constexpr std::int64_t kPatchBytes = 8 << 20;

/// Every row of y[rows, k] becomes the bias; returns the beta that lets a product be added to y.
template <class T> T start_output(std::int64_t rows, std::int64_t k, const Tensor& bias, T* y) {
  if (!bias.defined()) return 0;
  for_each_row(Device{}, rows, k, [=, b = bias.data<T>()](auto&, std::int64_t i) { std::copy_n(b, k, y + i * k); });
  return 1;
}

/// Rows of an image, or columns.
struct Axis {
  std::int64_t stride, padding, dilation, outputs;

  /// The input position under output position p and kernel position r; outside the image when in padding.
  std::int64_t input(std::int64_t p, std::int64_t r) const { return p * stride + r * dilation - padding; }
  /// The output position that sees input position h through kernel position r, or -1.
  std::int64_t output(std::int64_t h, std::int64_t r) const {
    const std::int64_t scaled = h + padding - r * dilation;
    if (scaled < 0 || scaled % stride != 0 || scaled / stride >= outputs) return -1;
    return scaled / stride;
  }
};

Axis rows_of(const Conv2dSpec& s) { return {s.stride.h, s.padding.h, s.dilation, s.out_height()}; }
Axis columns_of(const Conv2dSpec& s) { return {s.stride.w, s.padding.w, s.dilation, s.out_width()}; }

/// patches[n·H'·W', kh·kw·C] = im2col(x) of `images` images and of the C channels of a group, whose first x points at
template <class T> void gather_patches(const Conv2dSpec& s, std::int64_t images, const T* x, T* patches) {
  const std::int64_t c = s.in_channels / s.groups, out_w = s.out_width(), out_h = s.out_height();
  const Axis down = rows_of(s), across = columns_of(s);
  const std::int64_t length = s.kernel_h * s.kernel_w * c;
  for_each_row(Device{}, images * out_h, out_w * length, [=, &s](auto&, std::int64_t row) {
    const std::int64_t n = row / out_h, p = row % out_h;
    T* to = patches + row * out_w * length;
    for (std::int64_t q = 0; q < out_w; ++q)
      for (std::int64_t r = 0; r < s.kernel_h; ++r) {
        const std::int64_t h = down.input(p, r);
        const bool row_inside = h >= 0 && h < s.height;
        for (std::int64_t t = 0; t < s.kernel_w; ++t, to += c) {
          const std::int64_t v = across.input(q, t);
          if (row_inside && v >= 0 && v < s.width)
            std::copy_n(x + ((n * s.height + h) * s.width + v) * s.in_channels, c, to);
          else std::fill_n(to, c, T{0});
        }
      }
  });
}

/// dx = the transpose of gather_patches, applied to `patches`
template <class T> void scatter_patches(const Conv2dSpec& s, std::int64_t images, const T* patches, T* dx) {
  const std::int64_t c = s.in_channels / s.groups, out_w = s.out_width(), out_h = s.out_height();
  const Axis down = rows_of(s), across = columns_of(s);
  const std::int64_t taps = s.kernel_h * s.kernel_w;
  for_each_row(Device{}, images * s.height, s.width * taps * c, [=, &s](auto&, std::int64_t row) {
    const std::int64_t n = row / s.height, h = row % s.height;
    for (std::int64_t v = 0; v < s.width; ++v) {
      T* to = dx + (row * s.width + v) * s.in_channels;
      std::fill_n(to, c, T{0});
      for (std::int64_t r = 0; r < s.kernel_h; ++r) {
        const std::int64_t p = down.output(h, r);
        if (p < 0) continue;
        for (std::int64_t t = 0; t < s.kernel_w; ++t) {
          const std::int64_t q = across.output(v, t);
          if (q < 0) continue;
          const T* from = patches + (((n * out_h + p) * out_w + q) * taps + r * s.kernel_w + t) * c;
          for (std::int64_t i = 0; i < c; ++i) to[i] += from[i];
        }
      }
    }
  });
}

/// Calls f(output pixel, input pixel, kernel tap) for all pairs that the kernel connects.
template <class F> void for_each_connection(const Conv2dSpec& s, const F& f) {
  const Axis down = rows_of(s), across = columns_of(s);
  for (std::int64_t p = 0; p < s.out_height(); ++p)
    for (std::int64_t q = 0; q < s.out_width(); ++q)
      for (std::int64_t r = 0; r < s.kernel_h; ++r)
        for (std::int64_t t = 0; t < s.kernel_w; ++t) {
          const std::int64_t h = down.input(p, r), v = across.input(q, t);
          if (h >= 0 && h < s.height && v >= 0 && v < s.width)
            f(p * s.out_width() + q, h * s.width + v, r * s.kernel_w + t);
        }
}

/// E[(output pixel, k), (input pixel, c)] = w[k, tap, c], or zero where no tap connects the pixels
template <class T> void expand_weights(const Conv2dSpec& s, const T* w, T* e) {
  const std::int64_t c = s.in_channels, k_count = s.out_channels, taps = s.kernel_h * s.kernel_w;
  const std::int64_t in_pixels = s.height * s.width, out_pixels = s.out_height() * s.out_width();
  for_each_row(Device{}, k_count, out_pixels * in_pixels * c, [=, &s](auto&, std::int64_t k) {
    for (std::int64_t p = 0; p < out_pixels; ++p)
      std::fill_n(e + (p * k_count + k) * in_pixels * c, in_pixels * c, T(0.0f));
    for_each_connection(s, [&](std::int64_t p, std::int64_t q, std::int64_t tap) {
      std::copy_n(w + (k * taps + tap) * c, c, e + ((p * k_count + k) * in_pixels + q) * c);
    });
  });
}

/// Eᵀ, which lets the forward product read both matrices in row order (up to twice as fast on two threads).
/// `turned` is room for the weights as [tap, c, k].
template <class T> void expand_weights_transposed(const Conv2dSpec& s, const T* w, T* turned, T* et) {
  const std::int64_t c_count = s.in_channels, k_count = s.out_channels, taps = s.kernel_h * s.kernel_w;
  constexpr std::int64_t kTile = 16;  // rows and columns of the transposition that stay in cache together
  for_each_row(Device{}, (c_count + kTile - 1) / kTile, kTile * taps * k_count, [=](auto&, std::int64_t tile) {
    const std::int64_t begin = tile * kTile, end = std::min(begin + kTile, c_count);
    for (std::int64_t tap = 0; tap < taps; ++tap)
      for (std::int64_t k0 = 0; k0 < k_count; k0 += kTile)
        for (std::int64_t c = begin; c < end; ++c)
          for (std::int64_t k = k0; k < std::min(k0 + kTile, k_count); ++k)
            turned[(tap * c_count + c) * k_count + k] = w[(k * taps + tap) * c_count + c];
  });
  const std::int64_t in_pixels = s.height * s.width, out_pixels = s.out_height() * s.out_width();
  for_each_row(Device{}, c_count, out_pixels * in_pixels * k_count, [=, &s](auto&, std::int64_t c) {
    const std::int64_t length = out_pixels * k_count;
    for (std::int64_t q = 0; q < in_pixels; ++q) std::fill_n(et + (q * c_count + c) * length, length, T(0.0f));
    for_each_connection(s, [&](std::int64_t p, std::int64_t q, std::int64_t tap) {
      std::copy_n(turned + (tap * c_count + c) * k_count, k_count, et + (q * c_count + c) * length + p * k_count);
    });
  });
}

/// dw[k, tap, c] = sum of dE over the pairs of pixels that the tap connects
void fold_weights(const Conv2dSpec& s, const float* de, float* dw) {
  const std::int64_t c = s.in_channels, k_count = s.out_channels, taps = s.kernel_h * s.kernel_w;
  const std::int64_t in_pixels = s.height * s.width;
  for_each_row(Device{}, k_count, s.out_height() * s.out_width() * in_pixels * c, [=, &s](auto&, std::int64_t k) {
    std::fill_n(dw + k * taps * c, taps * c, 0.0f);
    for_each_connection(s, [&](std::int64_t p, std::int64_t q, std::int64_t tap) {
      float* to = dw + (k * taps + tap) * c;
      const float* from = de + ((p * k_count + k) * in_pixels + q) * c;
      for (std::int64_t i = 0; i < c; ++i) to[i] += from[i];
    });
  });
}

/// Of one image and group, in float32.
std::int64_t patch_bytes(const Conv2dSpec& s) {
  return s.out_height() * s.out_width() * s.kernel_h * s.kernel_w * (s.in_channels / s.groups) *
         std::int64_t{sizeof(float)};
}
std::int64_t images_at_once(const Conv2dSpec& s) {
  return std::clamp<std::int64_t>(kPatchBytes / patch_bytes(s), 1, s.batch);
}

}  // namespace

bool conv_pointwise(const Conv2dSpec& s, ConvDirection direction, const ConvTensors& t) {
  if (!s.is_pointwise() || (t.type() == DType::bfloat16 && !native_bfloat16())) return false;
  const std::int64_t pixels = s.batch * s.height * s.width;
  const Tensor x = t.x.view({pixels, s.in_channels}), w = t.w.view({s.out_channels, s.in_channels});
  const Tensor y = t.y.view({pixels, s.out_channels});
  switch (direction) {
    case ConvDirection::forward: gemm({.transpose_b = true}, x, w, y, {t.bias}); break;
    case ConvDirection::backward_data: gemm({}, y, w, x, {}); break;
    case ConvDirection::backward_weight: gemm({.transpose_a = true}, y, x, w, {}); break;
  }
  return true;
}

std::size_t im2col_scratch_bytes(const Conv2dSpec& s) {
  return static_cast<std::size_t>(images_at_once(s) * patch_bytes(s));
}

namespace {

template <class T> void im2col(const Conv2dSpec& s, ConvDirection direction, const ConvTensors& t) {
  const std::int64_t all = s.out_channels, k = all / s.groups, c = s.in_channels / s.groups;
  const std::int64_t length = s.kernel_h * s.kernel_w * c, out_pixels = s.out_height() * s.out_width();
  const std::int64_t in_size = s.height * s.width * s.in_channels, chunk = images_at_once(s);
  T* patches = reinterpret_cast<T*>(scratch(im2col_scratch_bytes(s) / sizeof(float) * sizeof(T)));
  for (std::int64_t n = 0; n < s.batch; n += chunk) {
    const std::int64_t images = std::min(chunk, s.batch - n), rows = images * out_pixels;
    T *const all_x = t.x.data<T>() + n * in_size, *const all_y = t.y.data<T>() + n * out_pixels * all;
    const T beta = direction == ConvDirection::forward ? start_output(rows, all, t.bias, all_y) : T(n > 0);
    for (std::int64_t group = 0; group < s.groups; ++group) {
      T *const x = all_x + group * c, *const y = all_y + group * k, *const w = t.w.data<T>() + group * k * length;
      if (direction == ConvDirection::backward_data) {
        gemm_strided(false, false, rows, length, k, T{1}, y, all, w, length, T{0}, patches, length);
        scatter_patches(s, images, patches, x);
        continue;
      }
      gather_patches(s, images, x, patches);
      if (direction == ConvDirection::forward)
        gemm_strided(false, true, rows, k, length, T{1}, patches, length, w, length, beta, y, all);
      else gemm_strided(true, false, k, length, rows, T{1}, y, all, patches, length, beta, w, length);
    }
  }
}

}  // namespace

bool conv_im2col(const Conv2dSpec& s, ConvDirection direction, const ConvTensors& t) {
  if (t.type() == DType::float32) im2col<float>(s, direction, t);
  else if (t.type() == DType::float64) im2col<double>(s, direction, t);
  else return false;
  return true;
}

std::size_t image_matrix_scratch_bytes(const Conv2dSpec& s) {
  const std::int64_t in = s.height * s.width * s.in_channels, out = s.out_height() * s.out_width() * s.out_channels;
  const std::int64_t weights = s.out_channels * s.kernel_h * s.kernel_w * s.in_channels;
  return static_cast<std::size_t>(in * out + weights) * sizeof(float);
}

namespace {

// Eᵀ and E of the products below, which oneDNN or OpenBLAS adds up in float32.

bool multiply(const GemmSpec& spec, std::int64_t m, std::int64_t n, std::int64_t k, const float* a, const float* b,
              float* c) {
  gemm_contiguous(spec.transpose_a, spec.transpose_b, m, n, k, 1.0f, a, b, spec.beta, c);
  return true;
}
template <class C>
bool multiply(const GemmSpec& spec, std::int64_t m, std::int64_t n, std::int64_t k, const bfloat16* a,
              const bfloat16* b, C* c) {
  return matmul_bfloat16(one_matrix(spec, m, n, k), {a, b, c, dtype_of<C>});
}

template <class T> bool image_matrix(const Conv2dSpec& s, ConvDirection direction, const ConvTensors& t) {
  const std::int64_t in = s.height * s.width * s.in_channels;
  const std::int64_t out_pixels = s.out_height() * s.out_width(), out = out_pixels * s.out_channels;
  std::byte* const room = scratch(image_matrix_scratch_bytes(s));
  T *const x = t.x.data<T>(), *const y = t.y.data<T>(), *const e = reinterpret_cast<T*>(room);
  if (direction == ConvDirection::forward) {
    expand_weights_transposed(s, t.w.data<T>(), e + in * out, e);
    GemmSpec spec;
    if constexpr (std::is_same_v<T, float>) spec.beta = start_output(s.batch * out_pixels, s.out_channels, t.bias, y);
    return multiply(spec, s.batch, out, in, x, e, y);
  }
  if (direction == ConvDirection::backward_data) {
    expand_weights(s, t.w.data<T>(), e);
    return multiply({}, s.batch, in, out, y, e, x);
  }
  auto* const de = reinterpret_cast<float*>(room);
  if (!multiply({.transpose_a = true}, out, in, s.batch, y, x, de)) return false;
  fold_weights(s, de, t.w.data<float>());
  return true;
}

}  // namespace

bool conv_image_matrix(const Conv2dSpec& s, ConvDirection direction, const ConvTensors& t) {
  const bool is_float = t.type() == DType::float32;
  if (s.groups != 1 || (!is_float && (!native_bfloat16() || t.bias.defined()))) return false;
  return is_float ? image_matrix<float>(s, direction, t) : image_matrix<bfloat16>(s, direction, t);
}

}  // namespace ab::cpu
