// SPDX-License-Identifier: MIT
#include "engine/optim/loss_scale.h"

#include <cmath>

#include "engine/optim/optimizer.h"

namespace ab {

void LossScale::update(HostRead grad_norm) {
  const double value = value_;
  if (last_value_ == value) count(last_overflowed());
  last_value_ = value;
  last_norm_ = std::move(grad_norm);
}

bool LossScale::last_overflowed() {
  if (last_norm_.defined()) last_overflowed_ = !std::isfinite(grad_norm_of(last_norm_));
  last_norm_ = {};
  return last_overflowed_;
}

void LossScale::count(bool overflow) {
  if (overflow) {
    AB_CHECK_KIND(numerics, value_ / 2 >= options_.floor,
                  "gradients are not finite even with a loss scale of {}: lower the learning rate or train in bf16",
                  value_);
    value_ /= 2;
    good_steps_ = 0;
  } else if (++good_steps_ == options_.growth_steps) {
    value_ *= 2;
    good_steps_ = 0;
  }
}

void LossScale::save(StateDict& state) {
  state.put("loss_scale", value_);
  state.put("loss_scale.good_steps", good_steps_);
  state.put("loss_scale.last", last_value_);
  state.put("loss_scale.last_overflowed", std::int64_t{last_overflowed()});
}

void LossScale::load(const StateDict& saved) {
  value_ = saved.number("loss_scale");
  good_steps_ = saved.integer("loss_scale.good_steps");
  last_value_ = saved.number("loss_scale.last");
  last_overflowed_ = saved.integer("loss_scale.last_overflowed") != 0;
  last_norm_ = {};
}

}  // namespace ab
