// SPDX-License-Identifier: MIT
#include "engine/sync/flat_gradients.h"

#include "engine/kernels/low_rank.h"

namespace ab {

FlatGradients::FlatGradients(std::vector<Param*> params, bool with_residual, std::int64_t multiple)
    : params_(std::move(params)) {
  Device device;
  for (const Param* p : params_) {
    begins_.push_back(elements_);
    elements_ += p->numel();
    device = p->value.value().device();
  }
  const Shape padded{(elements_ + multiple - 1) / multiple * multiple};
  work_ = Tensor(padded, DType::float32, device);
  if (with_residual) residual_ = Tensor::zeros(padded, DType::float32, device);
}

Tensor FlatGradients::part(const Tensor& flat, std::size_t i) const {
  return flat.slice(begins_[i], begins_[i] + params_[i]->numel());
}

void FlatGradients::gather() const {
  for (std::size_t i = 0; i < params_.size(); ++i) {
    const Tensor &gradient = params_[i]->value.grad(), to = part(work_, i);
    if (residual_.defined()) add_residual(gradient, part(residual_, i), to);
    else if (gradient.defined()) to.copy_from(gradient);
    else to.set_zero();
  }
  if (work_.numel() > elements_) work_.slice(elements_, work_.numel()).set_zero();
}

void FlatGradients::hand_over() const {
  for (std::size_t i = 0; i < params_.size(); ++i)
    params_[i]->value.set_grad(part(work_, i).view(params_[i]->value.shape()));
}

void FlatGradients::save(StateDict& state, const std::string& prefix) const {
  for (std::size_t i = 0; i < params_.size(); ++i)
    state.put(prefix + "." + params_[i]->name + ".residual", part(residual_, i));
}

void FlatGradients::load(const StateDict& saved, const std::string& prefix) {
  for (std::size_t i = 0; i < params_.size(); ++i)
    part(residual_, i).copy_from(saved.tensor(prefix + "." + params_[i]->name + ".residual"));
}

}  // namespace ab
