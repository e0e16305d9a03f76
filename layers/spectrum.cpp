// SPDX-License-Identifier: MIT
#include "layers/spectrum.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "engine/backend/backend.h"
#include "engine/core/random.h"
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

std::vector<float> new_singular_values(Spectrum spectrum, std::int64_t n, double largest, Philox random) {
  std::vector<float> values(static_cast<std::size_t>(n), 1.0f);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (spectrum == Spectrum::rand) values[i] = static_cast<float>(largest) * random.uniform(i);
    if (spectrum == Spectrum::sloped)
      values[i] = static_cast<float>(2 * largest * std::pow(0.1, static_cast<double>(i)));
  }
  std::sort(values.begin(), values.end(), std::greater{});
  return values;
}

/// The matrix with new singular values.   w: [rows, columns] float32
Tensor with_spectrum(const Tensor& w, Spectrum spectrum, Philox random) {
  const bool wide = w.dim(0) < w.dim(1);
  const Tensor tall = wide ? transpose(w) : w;
  Backend& math = backend(w.device());
  const Svd svd = math.svd(tall, SvdMethod::gram);
  const double largest = svd.s.slice(0, 1).item();
  const std::vector<float> values = new_singular_values(spectrum, svd.s.numel(), largest, random);
  scale_columns(svd.u, Tensor::from(values, svd.s.shape(), w.device()));
  const Tensor result(tall.shape(), tall.dtype(), tall.device());
  math.gemm({}, svd.u, svd.vt, result);
  return wide ? transpose(result) : result;
}

}  // namespace

void set_spectrum(const std::vector<Param*>& params, Spectrum spectrum, std::uint64_t seed) {
  if (spectrum == Spectrum::drawn) return;
  for (Param* param : params) {
    const Tensor value = param->value.value();
    const std::int64_t rows = matrix_rows(value.shape());
    if (rows == 0) continue;
    const Philox random{seed, stream_of(param->name + ".spectrum")};
    param->value.set_value(with_spectrum(value.view({rows, -1}), spectrum, random).view(value.shape()));
  }
}

}  // namespace ab
