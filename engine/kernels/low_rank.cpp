// SPDX-License-Identifier: MIT
#include "engine/kernels/low_rank.h"

#include "engine/backend/backend.h"
#include "engine/backend/cpu/low_rank.h"
#include "engine/core/precision.h"
#include "engine/kernels/map.h"

namespace ab {
namespace {

/// From here on a product is a library's: there is more arithmetic than memory.
constexpr std::int64_t kManyFactors = 8;

struct Sum {
  AB_HD float operator()(float a, float b) const { return a + b; }
};

struct KeepIfFailed {
  const double* failed;
  AB_HD float operator()(float now, float before) const { return *failed != 0 ? before : now; }
};

}  // namespace

void add_residual(const Tensor& gradient, const Tensor& residual, const Tensor& m) {
  if (!gradient.defined()) return m.copy_from(residual);
  map(m.device(), m.numel(), m.data<float>(), Sum{}, gradient.data<float>(), residual.data<float>());
}

void add_and_project(const Tensor& gradient, const Tensor& residual, const Tensor& q, const Tensor& m,
                     const Tensor& p) {
  const std::int64_t rows = m.dim(0), columns = m.dim(1), r = q.dim(0);
  AB_ASSERT(residual.numel() == m.numel() && q.dim(1) == columns && p.numel() == r * rows);
  AB_ASSERT(!gradient.defined() || gradient.numel() == m.numel());
  if (r >= kManyFactors) {
    const Tf32Scope exact(Precision::fp32);
    add_residual(gradient, residual, m);
    return backend(m.device()).gemm({.transpose_b = true}, q, m, p);
  }
  if (m.device().kind == DeviceKind::shapes) return;
  if (m.device().kind == DeviceKind::cpu) return cpu::add_and_project(gradient, residual, q, m, p);
  for_each_row(m.device(), rows, columns * (r + 2),
               kernels::AddAndProject{gradient.defined() ? gradient.data<float>() : nullptr, residual.data<float>(),
                                      q.data<float>(), m.data<float>(), p.data<float>(), rows, columns, r});
}

void split_off_projection(const RowFactors& own, const RowFactors& mean, const Tensor& failed, const Tensor& m,
                          const Tensor& residual) {
  const std::int64_t rows = m.dim(0), columns = m.dim(1), r = own.q.dim(0);
  AB_ASSERT(residual.numel() == m.numel() && failed.numel() == 1);
  const double* const fails = failed.data<double>();
  if (r >= kManyFactors) {
    const Tf32Scope exact(Precision::fp32);
    backend(m.device()).gemm({.transpose_a = true, .alpha = -1, .beta = 1}, own.p, own.q, m);
    float* const rest = residual.data<float>();
    map(m.device(), m.numel(), rest, KeepIfFailed{fails}, m.data<float>(), rest);
    return backend(m.device()).gemm({.transpose_a = true}, mean.p, mean.q, m);
  }
  if (m.device().kind == DeviceKind::shapes) return;
  if (m.device().kind == DeviceKind::cpu)
    return cpu::split_off_projection({own.p.data<float>(), own.q.data<float>()},
                                     {mean.p.data<float>(), mean.q.data<float>()}, r, fails, m, residual);
  for_each_row(m.device(), rows, columns * (2 * r + 3),
               kernels::SplitOffProjection{own.p.data<float>(), own.q.data<float>(), mean.p.data<float>(),
                                           mean.q.data<float>(), fails, m.data<float>(), residual.data<float>(), rows,
                                           columns, r});
}

}  // namespace ab
