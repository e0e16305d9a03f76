// SPDX-License-Identifier: MIT
#include "engine/kernels/low_rank.h"

#include <cstring>

#include "engine/backend/backend.h"
#include "engine/backend/cpu/low_rank.h"
#include "engine/kernels/map.h"

namespace ab {
namespace {

struct Sum {
  AB_HD float operator()(float a, float b) const { return a + b; }
};

/// One block: to = from, unless `failed`.
struct CopyGood {
  static constexpr std::int64_t kBlock = 4096;
  const double* failed;
  const float* from;
  float* to;
  std::int64_t n;
  AB_HD void operator()(std::int64_t block) const {
    if (*failed != 0) return;
    const std::int64_t begin = block * kBlock, end = n - begin < kBlock ? n : begin + kBlock;
    for (std::int64_t i = begin; i < end; ++i) to[i] = from[i];
  }
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
  if (runs_as_loops(m.device())) return cpu::add_and_project(gradient, residual, q, m, p);
  for_each_row(m.device(), rows, columns * (r + 2),
               kernels::AddAndProject{gradient.defined() ? gradient.data<float>() : nullptr, residual.data<float>(),
                                      q.data<float>(), m.data<float>(), p.data<float>(), rows, columns, r});
}

void split_off_projection(const RowFactors& own, const RowFactors& mean, const Tensor& failed, const Tensor& m,
                          const Tensor& residual) {
  const std::int64_t rows = m.dim(0), columns = m.dim(1), r = own.q.dim(0);
  AB_ASSERT(residual.numel() == m.numel() && failed.numel() == 1);
  constexpr std::int64_t kManyFactors = 8;  // from here on a processor is busier with arithmetic than with memory
  const double* const fails = failed.data<double>();
  if (runs_as_loops(m.device()) && r >= kManyFactors) {
    backend(m.device()).gemm({.transpose_a = true, .alpha = -1, .beta = 1}, own.p, own.q, m);
    for_each_index(m.device(), (m.numel() + CopyGood::kBlock - 1) / CopyGood::kBlock,
                   CopyGood{fails, m.data<float>(), residual.data<float>(), m.numel()}, CopyGood::kBlock);
    return backend(m.device()).gemm({.transpose_a = true}, mean.p, mean.q, m);
  }
  if (runs_as_loops(m.device()))
    return cpu::split_off_projection({own.p.data<float>(), own.q.data<float>()},
                                     {mean.p.data<float>(), mean.q.data<float>()}, r, fails, m, residual);
  for_each_row(m.device(), rows, columns * (2 * r + 3),
               kernels::SplitOffProjection{own.p.data<float>(), own.q.data<float>(), mean.p.data<float>(),
                                           mean.q.data<float>(), fails, m.data<float>(), residual.data<float>(), rows,
                                           columns, r});
}

Tensor factor_table(const std::vector<FactorRows>& factors, Device device) {
  std::vector<std::uint8_t> bytes(factors.size() * sizeof(FactorRows));
  if (!factors.empty()) std::memcpy(bytes.data(), factors.data(), bytes.size());
  return Tensor::from(bytes, Shape{static_cast<std::int64_t>(bytes.size())}, device);
}

void orthonormalise_rows(const Tensor& table, std::uint64_t seed, std::int64_t step) {
  const auto count = table.numel() / static_cast<std::int64_t>(sizeof(FactorRows));
  for_each_row(table.device(), count, kParallelGrain,
               kernels::OrthonormaliseRows{reinterpret_cast<const FactorRows*>(table.data<std::uint8_t>()), seed,
                                           factor_draw(step)});
}

}  // namespace ab
