// SPDX-License-Identifier: MIT
#include "layers/spectrum.h"

#include "engine/backend/backend.h"
#include "engine/kernels/elementwise.h"

namespace ab {
namespace {

/// Rows of the matrix that a parameter is seen as, or 0 when it has fewer than two dimensions above one.
std::int64_t matrix_rows(const Shape& shape) {
  std::int64_t rows = 0, others = 1;
  for (const std::int64_t size : shape) {
    if (size == 1) continue;
    if (rows == 0) rows = size;
    else others *= size;
  }
  return others > 1 ? rows : 0;
}

/// U Vᵀ of the matrix.   w: [rows, columns] float32
Tensor orthonormal(const Tensor& w) {
  const bool wide = w.dim(0) < w.dim(1);
  const Tensor tall = wide ? transpose(w) : w;
  Backend& math = backend(w.device());
  const Svd svd = math.svd(tall, SvdMethod::gram);
  const Tensor result(tall.shape(), tall.dtype(), tall.device());
  math.gemm({}, svd.u, svd.vt, result);
  return wide ? transpose(result) : result;
}

}  // namespace

void set_spectrum(const std::vector<Param*>& params, Spectrum spectrum) {
  if (spectrum == Spectrum::drawn) return;
  for (Param* param : params) {
    const Tensor value = param->value.value();
    const std::int64_t rows = matrix_rows(value.shape());
    if (rows > 0) param->value.set_value(orthonormal(value.view({rows, -1})).view(value.shape()));
  }
}

}  // namespace ab
