// SPDX-License-Identifier: MIT
#include <cmath>

#include "engine/kernels/optim.h"
#include "engine/optim/optimizer.h"

namespace ab {
namespace {

class AdamW final : public Optimizer {
 public:
  AdamW(std::vector<Param*> params, const AdamWOptions& options) : Optimizer(std::move(params)), options_(options) {}
  int moments_per_parameter() const override { return 2; }

 protected:
  void update(Param& param, ParamState& state, double learning_rate, float grad_scale) override {
    const Tensor& value = param.value.value();
    const double t = static_cast<double>(state.updates);
    launch(value.device(), value.numel(),
           AdamWUpdate{param.value.grad().data<float>(), value.data<float>(),
                       moment(state.first_moment, param).data<float>(), moment(state.second_moment, param).data<float>(),
                       static_cast<float>(learning_rate), static_cast<float>(options_.beta1),
                       static_cast<float>(options_.beta2), static_cast<float>(options_.epsilon),
                       decay_of(param, options_.weight_decay), grad_scale,
                       static_cast<float>(1.0 - std::pow(options_.beta1, t)),
                       static_cast<float>(1.0 - std::pow(options_.beta2, t))});
  }

 private:
  AdamWOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(std::vector<Param*> params, const AdamWOptions& options) {
  return std::make_unique<AdamW>(std::move(params), options);
}

}  // namespace ab
