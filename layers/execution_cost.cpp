// SPDX-License-Identifier: MIT
#include "layers/execution_cost.h"

namespace ab {

bool factors_are_cheaper(const Weight& weight, std::int64_t positions, double dense_advantage) {
  const double o = static_cast<double>(weight.out()), k = static_cast<double>(weight.in());
  const double r = static_cast<double>(weight.r()), rows = static_cast<double>(positions);
  const double trained = (weight.inner().trainable() ? r * k : 0) + (weight.outer().trainable() ? r * o : 0);
  const double products = 1 + weight.inner().trainable() + weight.outer().trainable();
  const double thin = rows * (2 * r * (k + o) + trained);
  const double formed = rows * 3 * o * k / dense_advantage + products * o * r * k;
  return thin <= formed;
}

bool run_factors(const Weight& weight, std::int64_t rows) {
  if (!weight.factored() || weight.rest().defined()) return false;
  if (weight.execution() != Execution::automatic) return weight.execution() == Execution::factors;
  return factors_are_cheaper(weight, rows, 1.0);
}

bool run_factors(const Weight& weight, const Conv2dSpec& spec) {
  if (!weight.factored() || weight.rest().defined()) return false;
  if (weight.execution() != Execution::automatic) return weight.execution() == Execution::factors;
  // The CPU backend's rule. The thin filters keep Winograd too once they are as wide as a vector register.
  const bool on_cpu = weight.inner().value.value().device().kind == DeviceKind::cpu;
  const bool dense_winograd =
      on_cpu && spec.kernel_h == 3 && spec.kernel_w == 3 && spec.stride == 1 && spec.in_channels >= 16;
  const bool thin_winograd = dense_winograd && weight.r() >= 64;
  return factors_are_cheaper(weight, spec.batch * spec.out_height() * spec.out_width(),
                             dense_winograd && !thin_winograd ? 2.0 : 1.0);
}

}  // namespace ab
