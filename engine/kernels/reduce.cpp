// SPDX-License-Identifier: MIT
#include "engine/kernels/reduce.h"

#include "engine/kernels/finite_check.h"
#include "engine/kernels/map.h"

namespace ab {
double sum_of_squares(const Tensor& t) {
  const std::int64_t n = t.numel(), chunks = (n + kernels::kReduceChunk - 1) / kernels::kReduceChunk;
  const Tensor partial(Shape{chunks}, DType::float64, t.device());
  const Tensor total = Tensor::zeros({1}, DType::float64, t.device());
  dispatch_float(t.dtype(), "sum_of_squares", [&]<class T>() {
    for_each_row(t.device(), chunks, kernels::kReduceChunk,
                 kernels::ChunkSquares<T>{t.data<T>(), partial.data<double>(), n});
  });
  for_each_row(t.device(), 1, chunks, kernels::AddPartials{partial.data<double>(), total.data<double>(), chunks});
  return total.item(0);
}

bool all_finite(const Tensor& t) {
  const FiniteCheck check(t.device());
  check.add(t);
  return check.failed().item(0) == 0;
}

void FiniteCheck::add(const Tensor& t) const {
  const std::int64_t n = t.numel(), chunks = (n + kernels::kReduceChunk - 1) / kernels::kReduceChunk;
  if (chunks == 0) return;
  const Tensor partial(Shape{chunks}, DType::float64, t.device());
  dispatch_float(t.dtype(), "finite check", [&]<class T>() {
    for_each_row(t.device(), chunks, kernels::kReduceChunk,
                 kernels::ChunkFinite<T>{t.data<T>(), partial.data<double>(), n});
  });
  add_sums(partial);
}

void FiniteCheck::add_sums(const Tensor& sums) const {
  for_each_row(sums.device(), 1, sums.numel(),
               kernels::AddPartials{sums.data<double>(), failed_.data<double>(), sums.numel()});
}

void FiniteCheck::choose(const Tensor& to, const Tensor& good, const Tensor& kept) const {
  AB_ASSERT(to.numel() == good.numel() && to.numel() == kept.numel());
  map(to.device(), to.numel(), to.data<float>(), kernels::ChooseGood{failed_.data<double>()}, good.data<float>(),
      kept.data<float>());
}

Tensor column_sums(const Tensor& m) {
  AB_CHECK(m.rank() >= 1, "column_sums: needs at least one dimension, got shape {}", m.shape().str());
  const Tensor y(Shape{m.dim(-1)}, m.dtype(), m.device());
  column_sums(m, y);
  return y;
}

void column_sums(const Tensor& m, const Tensor& y) {
  const std::int64_t columns = m.dim(-1);
  AB_ASSERT(y.numel() == columns && y.dtype() == m.dtype() && y.device() == m.device());
  if (m.numel() == 0) return y.set_zero();
  const kernels::PixelTable table = kernels::column_table(m);
  dispatch_float(m.dtype(), "column_sums", [&]<class T>() {
    using C = compute_t<T>;
    const Tensor partial(Shape{table.chunks(), table.columns()}, dtype_of<C>, m.device());
    for_each_row(m.device(), table.chunks(), table.chunk_rows * table.columns(),
                 kernels::ChunkColumnSums<T>{table, m.data<T>(), partial.data<C>()});
    kernels::sum_column_partials<T>(table, partial, y);
  });
}

kernels::PixelTable kernels::column_table(const Tensor& m) {
  const std::int64_t channels = m.dim(-1), rows = m.numel() / channels;
  if (!m.device().is_like_cpu())
    return gpu_pixel_table(rows, channels, kPackBytes / static_cast<std::int64_t>(size_of(m.dtype())));
  return {.pixels = rows, .channels = channels, .chunk_rows = std::max<std::int64_t>(16, kReduceChunk / channels)};
}

}  // namespace ab
