#pragma once
// SPDX-License-Identifier: MIT
//
// Vendor mathematics of one device: matrix products, convolutions, decompositions. Everything else is a
// kernel of our own (engine/kernels), run by engine/device/exec.h. backend(device) is the only selector; the CPU is built
// on oneDNN and OpenBLAS, the GPU on cuBLASLt, cuDNN and cuSOLVER.
// Callers (engine/ops) have checked shapes and types; a backend may assume them.

#include <compare>
#include <cstdint>

#include "engine/kernels/activation.h"

namespace ab {

/// C = alpha · op(A) · op(B) + beta · C, row-major, op(A): m×k, op(B): k×n, C: m×n.
struct GemmSpec {
  bool transpose_a = false;
  bool transpose_b = false;
  float alpha = 1.0f;
  float beta = 0.0f;
};

/// Where the equal matrices of a batched product lie in their tensor: matrix (i, j) begins at element
/// offset + i · outer_stride + j · inner_stride, and its rows are row_stride elements apart. Factors may all be one matrix, by
/// strides of 0.
struct MatrixGrid {
  std::int64_t offset = 0, row_stride = 0, outer_stride = 0, inner_stride = 0;
  auto operator<=>(const MatrixGrid&) const = default;
};

/// C_ij = alpha · op(A_ij) · op(B_ij) for i in [0, outer), j in [0, inner), such as the samples and heads of
/// attention; op(A): m×k, op(B): k×n, C: m×n.
struct BatchedGemmSpec {
  std::int64_t outer = 1, inner = 1;
  std::int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
  double alpha = 1.0;
  MatrixGrid a = {}, b = {}, c = {};
  auto operator<=>(const BatchedGemmSpec&) const = default;
};

/// Self-attention of [samples, tokens, 3 · heads · width], each token's queries, keys and values side by side.
struct AttentionSpec {
  std::int64_t samples = 0, heads = 0, tokens = 0, width = 0;
  DType dtype = DType::float32;
  auto operator<=>(const AttentionSpec&) const = default;
};

/// A number for each axis of images; of one number for both.
struct PerAxis {
  constexpr PerAxis(std::int64_t both) : h(both), w(both) {}
  constexpr PerAxis(std::int64_t h, std::int64_t w) : h(h), w(w) {}
  auto operator<=>(const PerAxis&) const = default;
  /// "2", or "2×1" where they differ.
  std::string str() const { return h == w ? fmt::format("{}", h) : fmt::format("{}×{}", h, w); }

  std::int64_t h, w;
};

/// A 2-D convolution (cross-correlation, as everywhere in deep learning).
/// x: [batch, height, width, in_channels], w: [out_channels, kernel_h, kernel_w, in_channels / groups],
/// y: [batch, out_height(), out_width(), out_channels].
struct Conv2dSpec {
  std::int64_t batch = 0, height = 0, width = 0, in_channels = 0, out_channels = 0;
  std::int64_t kernel_h = 1, kernel_w = 1;
  PerAxis stride = 1, padding = 0;
  std::int64_t dilation = 1, groups = 1;

  std::int64_t out_height() const { return (height + 2 * padding.h - dilation * (kernel_h - 1) - 1) / stride.h + 1; }
  std::int64_t out_width() const { return (width + 2 * padding.w - dilation * (kernel_w - 1) - 1) / stride.w + 1; }
  /// A plain matrix product over channels.
  bool is_pointwise() const { return kernel_h == 1 && kernel_w == 1 && stride == 1 && padding == 0 && groups == 1; }
  /// One output position that sees all of an image without padding: a matrix product over its pixels' channels.
  bool is_whole_image() const {
    return kernel_h == height && kernel_w == width && padding == 0 && dilation == 1 && groups == 1;
  }
  auto operator<=>(const Conv2dSpec&) const = default;
};

/// Which of its tensors a convolution makes: y, the gradient of x, or that of w.
enum class ConvDirection : std::uint8_t { forward, backward_data, backward_weight };

/// Thin singular value decomposition of a tall matrix: W = U · diag(s) · Vt. By the eigenvectors V of WᵀW in float64, s =
/// sqrt(eigenvalues), U = W V / s: several times faster on tall matrices than LAPACK's, and off by 4e-7 of the largest singular
/// value. Signs are fixed: the entry of largest magnitude in each row of Vt is positive.
struct Svd {
  Tensor u;   ///< [m, n], orthonormal columns
  Tensor s;   ///< [n], descending, not negative
  Tensor vt;  ///< [n, n], orthonormal rows
};

class Backend {
 public:
  virtual ~Backend() = default;

  /// float32, float64, and bfloat16 and float16 (accumulated in float32; on a CPU c may be float32 then, without an epilogue).
  /// A `bias` has n values. beta = 0 where the
  /// epilogue has a `z` or an `addend`.
  virtual void gemm(const GemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c,
                    const Epilogue& epilogue = {}) = 0;

  /// Type of dw below, and of the dw of a convolution: that of dy, or float32, in which products of bfloat16 are summed.
  virtual DType weight_gradient_type(const Tensor& dy) { return dy.dtype(); }
  /// dW[O,I] = dyᵀ x and, where `db` [O] is defined, the column sums of dy.   dy: [P,O], x: [P,I]
  virtual void gemm_backward_weight(const Tensor& dy, const Tensor& x, const Tensor& dw, const Tensor& db) = 0;

  /// The same types as gemm(). Elements between the matrices of `c` keep their values.
  virtual void batched_gemm(const BatchedGemmSpec& spec, const Tensor& a, const Tensor& b, const Tensor& c) = 0;

  /// Whether the two below can be called: attention in one pass over tiles, without scores in memory
  /// (cuda/cudnn_attention.h). Elsewhere it is built from batched products.
  virtual bool has_fused_attention(const AttentionSpec& /*spec*/) { return false; }
  /// y: [samples, tokens, heads · width];   log_sums: [samples, heads, tokens] float32, which backward wants
  virtual void attention_forward(const AttentionSpec&, const Tensor& /*qkv*/, const Tensor& /*y*/,
                                 const Tensor& /*log_sums*/) {}
  /// dqkv from dy and what forward read and wrote.
  struct AttentionBackward {
    Tensor dy, qkv, y, log_sums;
  };
  virtual void attention_backward(const AttentionSpec&, const AttentionBackward& /*of*/, const Tensor& /*dqkv*/) {}

  /// y = conv(x, w), with a `bias` of out_channels values and no addend.
  virtual void conv2d_forward(const Conv2dSpec& spec, const Tensor& x, const Tensor& w, const Epilogue& epilogue,
                              const Tensor& y) = 0;
  /// y = conv(x, w) with a `bias`, which may be undefined. Returns Σ y and Σ y² of every channel, [2, out_channels]
  /// float32, where that is faster than reading y again, otherwise an undefined tensor.
  virtual Tensor conv2d_forward_summed(const Conv2dSpec& spec, const Tensor& x, const Tensor& w, const Tensor& bias,
                                       const Tensor& y) {
    conv2d_forward(spec, x, w, {bias}, y);
    return {};
  }
  /// dx = the transposed convolution of dy with w; the epilogue has a `grad` where x = act(z), or an `addend`.
  virtual void conv2d_backward_data(const Conv2dSpec& spec, const Tensor& dy, const Tensor& w, const Tensor& dx,
                                    const Epilogue& epilogue = {}) = 0;
  /// `db` [out_channels] receives the sums of dy over all pixels, unless it is undefined.
  virtual void conv2d_backward_weight(const Conv2dSpec& spec, const Tensor& dy, const Tensor& x, const Tensor& dw,
                                      const Tensor& db) = 0;

  /// `w` is float32 [m, n] with m >= n. U has orthonormal columns even where singular values vanish. Throws Error(numerics) when w
  /// holds NaN or infinity or when the iteration does not converge.
  virtual Svd svd(const Tensor& w) = 0;
};

/// The backend of `device`; throws Error(communication) when the device is not there.
Backend& backend(Device device);

/// Implemented by engine/backend/cpu.
Backend& cpu_backend();
/// Implemented by engine/backend/cuda, or by its stub in builds without CUDA.
Backend& cuda_backend(int device_index);
/// Implemented by engine/device/shapes.
Backend& shapes_backend();

}  // namespace ab
