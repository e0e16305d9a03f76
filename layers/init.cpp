// SPDX-License-Identifier: MIT
#include "layers/init.h"

#include <algorithm>
#include <cmath>

#include "engine/backend/backend.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/random.h"

namespace ab {

Distribution kaiming_normal(std::int64_t fan_out) {
  return {Distribution::Kind::normal, std::sqrt(2.0 / static_cast<double>(fan_out))};
}

Distribution uniform_fan_in(std::int64_t fan_in) {
  return {Distribution::Kind::uniform, 1.0 / std::sqrt(static_cast<double>(fan_in))};
}

Distribution xavier_uniform(std::int64_t fan_in, std::int64_t fan_out) {
  return {Distribution::Kind::uniform, std::sqrt(6.0 / static_cast<double>(fan_in + fan_out))};
}

Tensor initial_value(const std::string& name, const Shape& shape, const Distribution& from, const Build& build) {
  const Tensor t(shape, DType::float32, build.device);
  const Philox random{build.seed, stream_of(name)};
  if (from.kind == Distribution::Kind::constant) fill(t, from.scale);
  else if (!build.draw) return t;
  else if (from.kind == Distribution::Kind::normal) fill_normal(t, 0.0, from.scale, random);
  else fill_uniform(t, -from.scale, from.scale, random);
  return t;
}

Tensor filled(const Shape& shape, float value, Device device) {
  const Tensor t(shape, DType::float32, device);
  fill(t, value);
  return t;
}

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
  const Svd svd = math.svd(tall);
  const Tensor result(tall.shape(), tall.dtype(), tall.device());
  math.gemm({}, svd.u, svd.vt, result);
  return wide ? transpose(result) : result;
}

/// The kernel with outputs that pass their input on in place of the first min(O, I).   kernel: [O, k, k, I]
Tensor dirac(const Tensor& kernel) {
  const Tensor result = kernel.to(Device{}).clone();
  const std::int64_t k = kernel.dim(1), in = kernel.dim(3), centre = (k * k / 2) * in;
  for (std::int64_t o = 0; o < std::min(kernel.dim(0), in); ++o) {
    float* const of_output = result.data<float>() + o * k * k * in;
    std::fill_n(of_output, k * k * in, 0.0f);
    of_output[centre + o] = 1;
  }
  return result.to(kernel.device());
}

bool is_3x3(const Shape& shape) { return shape.rank() == 4 && shape[1] == 3 && shape[2] == 3; }

}  // namespace

bool changes(const Param& param, Init init) {
  const Shape& shape = param.value.shape();
  switch (init) {
    case Init::drawn: return false;
    case Init::ortho: return matrix_rows(shape) > 0;
    case Init::dirac: return param.role == ParamRole::weight && is_3x3(shape);
  }
  return false;
}

void change_initial(const std::vector<Param*>& params, Init init) {
  for (Param* param : params) {
    if (!changes(*param, init)) continue;
    const Tensor value = param->value.value();
    const Tensor changed =
        init == Init::dirac ? dirac(value) : orthonormal(value.view({matrix_rows(value.shape()), -1}));
    param->value.set_value(changed.view(value.shape()));
  }
}

}  // namespace ab
