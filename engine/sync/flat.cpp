// SPDX-License-Identifier: MIT
#include "engine/sync/flat.h"

namespace ab {
namespace {

template <class Collective> void through_flat_buffers(const std::vector<Tensor>& tensors, Collective&& collective) {
  std::map<DType, std::vector<Tensor>> by_type;
  for (const Tensor& tensor : tensors) by_type[tensor.dtype()].push_back(tensor);
  for (const auto& [dtype, group] : by_type) {
    const Tensor flat(Shape{elements_by_type(group).at(dtype)}, dtype, group.front().device());
    // Captured by name: clang before 16 does not capture a structured binding.
    const auto for_each_part = [&, &group = group](auto&& copy) {
      std::int64_t begin = 0;
      for (const Tensor& tensor : group) {
        copy(tensor, flat.slice(begin, begin + tensor.numel()));
        begin += tensor.numel();
      }
    };
    for_each_part([](const Tensor& tensor, const Tensor& part) { part.copy_from(tensor); });
    collective(flat);
    for_each_part([](const Tensor& tensor, const Tensor& part) { tensor.copy_from(part); });
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

}  // namespace ab
