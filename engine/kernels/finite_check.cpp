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

}  // namespace ab
