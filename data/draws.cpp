// SPDX-License-Identifier: MIT
#include "data/draws.h"

#include <cmath>

namespace ab {

double Draws::gamma(double shape) {
  // Below 1: Gamma(shape) = Gamma(shape + 1) · U^(1/shape).
  if (shape < 1) {
    const double power = std::pow(1 - uniform(), 1 / shape);
    return gamma(shape + 1) * power;
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = normal(), v = std::pow(1 + c * x, 3);
    if (v > 0 && std::log(1 - uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

double Draws::beta(double a, double b) {
  const double x = gamma(a), y = gamma(b);
  // Tiny parameters make both vanish; the distribution is then two points, 0 and 1.
  return x + y > 0 ? x / (x + y) : static_cast<double>(uniform() < a / (a + b));
}

}  // namespace ab
