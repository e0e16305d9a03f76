// SPDX-License-Identifier: MIT
#include "engine/kernels/low_rank.h"

#include "engine/kernels/elementwise_functors.h"
#include "engine/kernels/map.h"

namespace ab {
void add_residual(const Tensor& gradient, const Tensor& residual, const Tensor& m) {
  if (!gradient.defined()) return m.copy_from(residual);
  map(m.device(), m.numel(), m.data<float>(), kernels::Add<float>{}, gradient.data<float>(), residual.data<float>());
}

void split_into_directions(const ScaledRows& own, const ScaledRows& update, double noise, const Tensor& q) {
  const std::int64_t r = q.dim(0), n = q.dim(1);
  const Tensor lengths({r}, DType::float32, q.device());
  for_each_row(q.device(), r, n, kernels::RowLengths{own.rows.data<float>(), lengths.data<float>(), n});
  for_each_row(q.device(), r, 3 * n,
               kernels::SplitIntoDirections{lengths.data<float>(), own.rows.data<float>(), update.rows.data<float>(),
                                            q.data<float>(), r, n, static_cast<float>(own.scale),
                                            static_cast<float>(update.scale), static_cast<float>(noise)});
}

void run_pass(Device device, const kernels::AddAndProject& pass) {
  for_each_row(device, pass.n, pass.columns * (pass.r + 2), pass);
}

void run_pass(Device device, const kernels::SplitOffProjection& pass) {
  for_each_row(device, pass.n, pass.columns * (2 * pass.r + 3), pass);
}

}  // namespace ab
