#pragma once
// SPDX-License-Identifier: MIT
//
// Dynamic loss scaling for float16 (Micikevicius et al. 2018, section 3.2): backward() runs on gradients times a
// power of two that is as large as it can be without overflow.
// Every rank keeps a scale of its own. That is enough, because backward() takes the scale off again before gradients
// are exchanged, batch norm before its ranks add up sums on the way (engine/ops/norm.cpp), and an infinity on one rank
// reaches, through the mean, all that share the gradient: these skip the update together. Groups of AB-training that
// share none skip on their own, and a skipped update counts as a step, in the schedule and in the optimizer, so that all
// ranks go through the same phases. With --ab.group-size 1 a rank skips by itself, biases and norms too, which then
// differ within its group until the next synchronisation.
// Whether an update is skipped is decided on the device, before it touches anything. The scale is decided here, and one
// update late, so that nobody waits: what an update showed counts when the next one has been issued. That next one still
// runs with the old scale and says nothing about the new one, so it is left out of account; an overflow usually costs
// two updates. The lag is the same everywhere and in every run, resumed or not.

#include <cmath>

#include "engine/optim/optimizer.h"

namespace ab {

struct LossScaleOptions {
  double initial = 65536;
  std::int64_t growth_steps = 2000;  ///< updates without overflow in a row before it is doubled
  double floor = 1;
};

class LossScale {
 public:
  explicit LossScale(const LossScaleOptions& options = {}) : options_(options), value_(options.initial) {}

  /// The loss_scale of backward().
  double value() const { return value_; }

  /// After every update, with the norm of its gradients (Optimizer::read_grad_norm). Counts the update before: halves
  /// after an overflow, doubles after growth_steps without. Throws Error(numerics) when gradients overflow at the floor.
  void update(HostRead grad_norm) {
    const double value = value_;
    if (last_value_ == value) count(last_overflowed());
    last_value_ = value;
    last_norm_ = std::move(grad_norm);
  }

  /// Waits for the norm of the last update.
  void save(StateDict& state) {
    state.put("loss_scale", value_);
    state.put("loss_scale.good_steps", good_steps_);
    state.put("loss_scale.last", last_value_);
    state.put("loss_scale.last_overflowed", std::int64_t{last_overflowed()});
  }

  void load(const StateDict& saved) {
    value_ = saved.number("loss_scale");
    good_steps_ = saved.integer("loss_scale.good_steps");
    last_value_ = saved.number("loss_scale.last");
    last_overflowed_ = saved.integer("loss_scale.last_overflowed") != 0;
    last_norm_ = {};
  }

 private:
  bool last_overflowed() {
    if (last_norm_.defined()) last_overflowed_ = !std::isfinite(grad_norm_of(std::exchange(last_norm_, {})));
    return last_overflowed_;
  }

  void count(bool overflow) {
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

  LossScaleOptions options_;
  double value_;
  std::int64_t good_steps_ = 0;  // since the value last changed

  // The last update, which has not been counted yet.
  double last_value_ = 0;  // that it ran with
  HostRead last_norm_;     // undefined when it has been looked at
  bool last_overflowed_ = false;
};

}  // namespace ab
