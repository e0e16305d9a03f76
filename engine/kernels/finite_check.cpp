// SPDX-License-Identifier: MIT
#include "engine/kernels/finite_check.h"

#include "engine/kernels/map.h"

namespace ab {

void FiniteCheck::add(const Tensor& t) const {
  const std::int64_t n = t.numel(), chunks = (n + kernels::kReduceChunk - 1) / kernels::kReduceChunk;
  if (chunks == 0) return;
  const Tensor partial(Shape{chunks}, DType::float64, t.device());
  dispatch_float(t.dtype(), "finite check", [&]<class T>() {
    for_each_row(t.device(), chunks, kernels::kReduceChunk,
                 kernels::ChunkFinite<T>{t.data<T>(), partial.data<double>(), n});
  });
  for_each_row(t.device(), 1, chunks,
               kernels::AddPartials{partial.data<double>(), failed_.data<double>(), chunks});
}

void FiniteCheck::take_back(const Tensor& t, const Tensor& kept) const {
  AB_ASSERT(t.numel() == kept.numel());
  map(t.device(), t.numel(), t.data<float>(), kernels::TakeBack{failed_.data<double>()}, t.data<float>(),
      kept.data<float>());
}

}  // namespace ab
