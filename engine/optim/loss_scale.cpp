// SPDX-License-Identifier: MIT
#include "engine/optim/loss_scale.h"

namespace ab {

void LossScale::update(bool overflow) {
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

void LossScale::save(StateDict& state) const {
  state.put("loss_scale", value_);
  state.put("loss_scale.good_steps", good_steps_);
}

void LossScale::load(const StateDict& saved) {
  value_ = saved.number("loss_scale");
  good_steps_ = saved.integer("loss_scale.good_steps");
}

}  // namespace ab
