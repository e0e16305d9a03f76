// SPDX-License-Identifier: MIT
#include "engine/kernels/optim.h"
#include "engine/optim/optimizer.h"

namespace ab {
namespace {

class Sgd final : public Optimizer {
 public:
  Sgd(std::vector<Param*> params, const SgdOptions& options) : Optimizer(std::move(params)), options_(options) {}
  int moments_per_parameter() const override { return 1; }

 protected:
  void update(Param& param, ParamState& state, double learning_rate, float grad_scale) override {
    const Tensor& value = param.value.value();
    launch(value.device(), value.numel(),
           SgdUpdate{param.value.grad().data<float>(), value.data<float>(), moment(state.first_moment, param).data<float>(),
                     static_cast<float>(learning_rate), static_cast<float>(options_.momentum),
                     decay_of(param, options_.weight_decay), grad_scale, options_.nesterov});
  }

 private:
  SgdOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(std::vector<Param*> params, const SgdOptions& options) {
  return std::make_unique<Sgd>(std::move(params), options);
}

}  // namespace ab
