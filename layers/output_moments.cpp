// SPDX-License-Identifier: MIT
#include "layers/output_moments.h"

#include "engine/backend/backend.h"
#include "engine/core/precision.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/finite_check.h"
#include "engine/kernels/reduce.h"

namespace ab {
namespace {

/// total += step, unless the step holds NaN or infinity.
void add_if_finite(const Tensor& step, const Tensor& total) {
  const FiniteCheck check(total.device());
  check.add(step);
  add_in_place(step, total);
  check.choose(total, step, total);
}

Tensor rows_of(const Tensor& t) { return cast(t, DType::float32).view({-1, t.dim(-1)}); }

}  // namespace

OutputMoments::OutputMoments(std::int64_t channels, Device device)
    : channels_(channels), sums_(Tensor::zeros({elements(channels)}, DType::float32, device)) {}

Var OutputMoments::observe(const Var& y) {
  return observe(y, {.values = y.value(), .gradient = [](const Tensor& dy) { return dy; }});
}

Var OutputMoments::observe(const Var& y, const Parts& parts) {
  const auto batch = static_cast<double>(y.shape()[0]);
  const double samples = batch * parts.share;
  add_outputs(parts.values, samples);
  return record("observe", y.value(), {y}, [this, batch, samples, gradient = parts.gradient](const Tensor& dy) {
    add_gradients(gradient(dy), batch, samples);
    return Gradients{dy};
  });
}

void OutputMoments::add_outputs(const Tensor& values, double samples) const {
  const Tf32Scope exact(Precision::fp32);
  const Tensor rows = rows_of(values);
  const auto positions = static_cast<double>(rows.dim(0));
  const Tensor step({output_part()}, DType::float32, sums_.device());
  const auto part_of_step = [&](std::int64_t begin, std::int64_t count) { return step.slice(begin, begin + count); };
  const Tensor scatter = part_of_step(0, square()).view({channels_, channels_});
  const Tensor sum = part_of_step(square(), channels_);
  Backend& math = backend(step.device());
  column_sums(rows, sum);
  math.gemm({.transpose_a = true}, rows, rows, scatter);
  const Tensor row = sum.view({1, channels_});
  math.gemm({.transpose_a = true, .alpha = static_cast<float>(-1 / positions), .beta = 1}, row, row, scatter);
  fill(part_of_step(square() + channels_, 1), positions);
  fill(part_of_step(square() + channels_ + 1, 1), samples);
  add_if_finite(step, part(0, output_part()));
}

void OutputMoments::add_gradients(const Tensor& gradient, double batch, double samples) const {
  const Tf32Scope exact(Precision::fp32);
  const Tensor rows = rows_of(gradient);
  const Tensor step({square() + 1}, DType::float32, sums_.device());
  backend(step.device())
      .gemm({.transpose_a = true, .alpha = static_cast<float>(batch * batch)}, rows, rows,
            step.slice(0, square()).view({channels_, channels_}));
  const Tensor weight = step.slice(square(), square() + 1), scale = backward_scale().view({1});
  fill(weight, samples);
  for (int i = 0; i < 2; ++i) scale_in_place(weight, scale);
  add_if_finite(step, part(output_part(), square() + 1));
}

}  // namespace ab
