// SPDX-License-Identifier: MIT
#include "engine/sync/flat.h"

#include <map>

#include "engine/kernels/elementwise.h"
#include "engine/kernels/low_rank.h"

namespace ab {
namespace {

template <class Collective> void through_flat_buffers(const std::vector<Tensor>& tensors, Collective&& collective) {
  std::map<DType, std::vector<Tensor>> by_type;
  for (const Tensor& tensor : tensors) by_type[tensor.dtype()].push_back(tensor);
  for (const auto& [dtype, group] : by_type) {
    const Tensor flat = flat_like(group);
    gather_parts(group, flat);
    collective(flat);
    scatter_parts(flat, group);
  }
}

}  // namespace

void broadcast_flat(Comm& comm, const std::vector<Tensor>& tensors, int root) {
  through_flat_buffers(tensors, [&](const Tensor& flat) { comm.broadcast(flat, root); });
}

void all_reduce_flat(Comm& comm, const std::vector<Tensor>& tensors, ReduceOp op) {
  through_flat_buffers(tensors, [&](const Tensor& flat) { comm.all_reduce(flat, op); });
}

ParameterMean::ParameterMean(std::vector<Tensor> params, DType wire) : params_(std::move(params)), wire_(wire) {
  if (!in_16_bits()) return;
  reference_ = flat_like(params_);
  agree();
}

Tensor ParameterMean::over(Comm& comm, double weight) const {
  const Tensor flat = flat_like(params_);
  gather_parts(params_, flat);
  if (in_16_bits()) axpy(-1, reference_, flat);
  if (weight != 1) scale_in_place(flat, weight);
  const Tensor sent = cast(flat, wire_);
  comm.all_reduce(sent, ReduceOp::mean);
  if (in_16_bits()) {
    cast_into(flat, sent);
    add_in_place(flat, reference_);
  }
  return flat;
}

void ParameterMean::agree() {
  if (in_16_bits()) gather_parts(params_, reference_);
}

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
