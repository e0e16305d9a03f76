// SPDX-License-Identifier: MIT
#include "engine/sync/flat.h"

#include "engine/kernels/elementwise.h"

namespace ab {

namespace {

template <class Collective> void through_flat_buffers(const std::vector<Tensor>& tensors, Collective&& collective) {
  std::map<DType, std::vector<Tensor>> by_type;
  for (const Tensor& tensor : tensors) by_type[tensor.dtype()].push_back(tensor);
  for (const auto& [dtype, group] : by_type) {
    const Tensor flat(Shape{elements_by_type(group).at(dtype)}, dtype, group.front().device());
    gather_parts(group, flat);
    collective(flat);
    scatter_parts(flat, group);
  }
}

}  // namespace

std::map<DType, std::int64_t> elements_by_type(const std::vector<Tensor>& tensors) {
  std::map<DType, std::int64_t> elements;
  for (const Tensor& tensor : tensors) elements[tensor.dtype()] += tensor.numel();
  return elements;
}

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

}  // namespace ab
