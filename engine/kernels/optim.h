#pragma once
// SPDX-License-Identifier: MIT
//
// Optimizer updates, one pass over each parameter.

#include <cmath>

#include "engine/core/host_device.h"
#include "engine/core/tensor.h"

namespace ab {

/// g ← scale · g + wd · w;  v ← momentum · v + g;  w ← w − lr · (nesterov ? g + momentum · v : v)
struct SgdUpdate {
  const float* grad;
  float* value;
  float* momentum_buffer;
  float learning_rate, momentum, weight_decay, grad_scale;
  bool nesterov;

  AB_HD void operator()(std::int64_t i) const {
    const float g = grad_scale * grad[i] + weight_decay * value[i];
    const float v = momentum * momentum_buffer[i] + g;
    momentum_buffer[i] = v;
    value[i] -= learning_rate * (nesterov ? g + momentum * v : v);
  }
};

/// m ← β1 m + (1 − β1) g;  v ← β2 v + (1 − β2) g²;  w ← w − lr · (m / c1 / (sqrt(v / c2) + eps) + wd · w)
/// with the bias corrections c1 = 1 − β1^t and c2 = 1 − β2^t.
struct AdamWUpdate {
  const float* grad;
  float* value;
  float* first_moment;
  float* second_moment;
  float learning_rate, beta1, beta2, epsilon, weight_decay, grad_scale, correction1, correction2;

  AB_HD void operator()(std::int64_t i) const {
    const float g = grad_scale * grad[i];
    const float m = beta1 * first_moment[i] + (1.0f - beta1) * g;
    const float v = beta2 * second_moment[i] + (1.0f - beta2) * g * g;
    first_moment[i] = m;
    second_moment[i] = v;
    const float direction = (m / correction1) / (sqrtf(v / correction2) + epsilon);
    value[i] -= learning_rate * (direction + weight_decay * value[i]);
  }
};

/// Launch over all elements of a float32 parameter on its device.
void launch(Device device, std::int64_t n, const SgdUpdate& update);
void launch(Device device, std::int64_t n, const AdamWUpdate& update);

}  // namespace ab
