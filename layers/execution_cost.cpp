// SPDX-License-Identifier: MIT
#include "layers/execution_cost.h"

namespace ab {

bool factors_are_cheaper(const Weight& weight, const FactorPositions& positions, double dense_advantage) {
  const double o = static_cast<double>(weight.rows()), k = static_cast<double>(weight.columns());
  const double r = static_cast<double>(weight.r());
  const double inner = static_cast<double>(positions.inner), outer = static_cast<double>(positions.outer);
  const int trains_inner = weight.inner().trainable(), trains_outer = weight.outer().trainable();
  const double thin = inner * (2 + trains_inner) * r * k + outer * (2 + trains_outer) * r * o;
  const double whole = static_cast<double>(weight.shape().numel());
  const double formed = outer * 3 * whole / dense_advantage + (1 + trains_inner + trains_outer) * r * whole;
  return thin <= formed;
}

bool run_factors(const Weight& weight, std::int64_t rows) {
  if (!weight.factored() || weight.rest().defined()) return false;
  if (weight.execution() != Execution::automatic) return weight.execution() == Execution::factors;
  return factors_are_cheaper(weight, {rows, rows}, 1.0);
}

bool run_factors(const Weight& weight, const Conv2dSpec& spec) {
  if (!weight.factored() || weight.rest().defined()) return false;
  if (weight.execution() != Execution::automatic) return weight.execution() == Execution::factors;
  // The CPU backend's rule. The thin filters keep Winograd too once they are as wide as a vector register.
  const bool on_cpu = weight.inner().value.value().device().is_like_cpu();
  const bool dense_winograd =
      on_cpu && spec.kernel_h == 3 && spec.kernel_w == 3 && spec.stride == 1 && spec.in_channels >= 16;
  const bool thin_winograd = dense_winograd && weight.conv_factors() == ConvFactors::channel && weight.r() >= 64;
  const bool spatial = weight.conv_factors() == ConvFactors::spatial;
  const FactorPositions positions{spec.batch * (spatial ? spec.height : spec.out_height()) * spec.out_width(),
                                  spec.batch * spec.out_height() * spec.out_width()};
  return factors_are_cheaper(weight, positions, dense_winograd && !thin_winograd ? 2.0 : 1.0);
}

}  // namespace ab
