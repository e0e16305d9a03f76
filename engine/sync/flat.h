#pragma once
// SPDX-License-Identifier: MIT
//
// Many small tensors as one flat buffer, because a collective has a price of its own, whatever its size. The tensors lie on one
// device, and so does the buffer.

#include <map>
#include <vector>

#include "engine/autograd/var.h"
#include "engine/comm/comm.h"
#include "engine/core/tensor.h"
#include "engine/io/state_dict.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/low_rank.h"

namespace ab {

/// An uninitialised buffer for all of `tensors`, which are of one type: each is a part, one behind the other.
inline Tensor flat_like(const std::vector<Tensor>& tensors) {
  std::int64_t elements = 0;
  for (const Tensor& tensor : tensors) {
    AB_CHECK(tensor.dtype() == tensors.front().dtype(), "tensors of {} and {} cannot share a flat buffer",
             name_of(tensors.front().dtype()), name_of(tensor.dtype()));
    elements += tensor.numel();
  }
  return Tensor(Shape{elements}, tensors.front().dtype(), tensors.front().device());
}

/// use(tensor, part): `part` [tensor.numel()] shares the storage of `flat`, which may be longer.
template <class Use> void for_each_part(const std::vector<Tensor>& tensors, const Tensor& flat, Use&& use) {
  std::int64_t begin = 0;
  for (const Tensor& tensor : tensors) {
    use(tensor, flat.slice(begin, begin + tensor.numel()));
    begin += tensor.numel();
  }
}

inline void gather_parts(const std::vector<Tensor>& tensors, const Tensor& flat) {
  for_each_part(tensors, flat, [](const Tensor& tensor, const Tensor& part) { part.copy_from(tensor); });
}

inline void scatter_parts(const Tensor& flat, const std::vector<Tensor>& tensors) {
  for_each_part(tensors, flat, [](const Tensor& tensor, const Tensor& part) { tensor.copy_from(part); });
}

/// collective(flat) for one buffer per element type, whose values the tensors have before and take after it.
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

/// Every tensor of every rank takes the values it has on `root`.
inline void broadcast_flat(Comm& comm, const std::vector<Tensor>& tensors, int root) {
  through_flat_buffers(tensors, [&](const Tensor& flat) { comm.broadcast(flat, root); });
}

/// In place, over all ranks of `comm`.
inline void all_reduce_flat(Comm& comm, const std::vector<Tensor>& tensors, ReduceOp op) {
  through_flat_buffers(tensors, [&](const Tensor& flat) { comm.all_reduce(flat, op); });
}

/// Means of parameters over ranks whose replicas have drifted apart. In 16 bits the parameters themselves must not
/// travel, as small updates would be lost in rounding them; there the ranks send how far each has come from a reference
/// r that all of them hold, the model that they last had in common:
///   float32   θ ← mean over ranks of θ          16 bits   θ ← r + mean over ranks of (θ − r)
class ParameterMean {
 public:
  /// `wire`: the type that travels. `params` are float32 on one device, equal on all ranks now, and outlive this.
  ParameterMean(std::vector<Tensor> params, DType wire) : params_(std::move(params)), wire_(wire) {
    if (!in_16_bits()) return;
    reference_ = flat_like(params_);
    agree();
  }

  bool in_16_bits() const { return wire_ != DType::float32; }
  const std::vector<Tensor>& params() const { return params_; }

  /// The mean over the ranks of `comm`, flat; this rank's parameters count `weight` times. One all-reduce.
  Tensor over(Comm& comm, double weight = 1) const {
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

  /// All ranks hold the present parameters.
  void agree() {
    if (in_16_bits()) gather_parts(params_, reference_);
  }

  /// The model last in common, which a rank that has drifted cannot know otherwise; undefined in float32.
  const Tensor& reference() const { return reference_; }

 private:
  std::vector<Tensor> params_;
  DType wire_;
  Tensor reference_;  // flat
};

/// The gradients of some parameters as one vector, in forward order, for methods that select from all of them together.
class FlatGradients {
 public:
  /// The vector ends with zeros up to a multiple of `multiple`. Without a residual of each element it takes half the
  /// memory.
  FlatGradients(std::vector<Param*> params, bool with_residual, std::int64_t multiple = 1)
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

  std::int64_t elements() const { return elements_; }   ///< those of parameters
  const Tensor& work() const { return work_; }          ///< [elements() and padding] M, then Ĝ
  const Tensor& residual() const { return residual_; }  ///< the same, E of this rank
  const std::vector<Param*>& params() const { return params_; }
  /// Parameter i begins at element begin(i); its part of work() or residual().
  std::int64_t begin(std::size_t i) const { return begins_[i]; }
  Tensor part(const Tensor& flat, std::size_t i) const {
    return flat.slice(begins_[i], begins_[i] + params_[i]->numel());
  }

  /// work = G + E, or G where there is no residual. A gradient that has not arrived counts as zeros.
  void gather() const {
    for (std::size_t i = 0; i < params_.size(); ++i) {
      const Tensor &gradient = params_[i]->value.grad(), to = part(work_, i);
      if (residual_.defined()) add_residual(gradient, part(residual_, i), to);
      else if (gradient.defined()) to.copy_from(gradient);
      else to.set_zero();
    }
    if (work_.numel() > elements_) work_.slice(elements_, work_.numel()).set_zero();
  }

  /// Every parameter's gradient becomes its part of work.
  void hand_over() const {
    for (std::size_t i = 0; i < params_.size(); ++i)
      params_[i]->value.set_grad(part(work_, i).view(params_[i]->value.shape()));
  }

  /// Residuals as "PREFIX.PARAMETER.residual".
  void save(StateDict& state, const std::string& prefix) const {
    for (std::size_t i = 0; i < params_.size(); ++i)
      state.put(prefix + "." + params_[i]->name + ".residual", part(residual_, i));
  }
  void load(const StateDict& saved, const std::string& prefix) {
    for (std::size_t i = 0; i < params_.size(); ++i)
      part(residual_, i).copy_from(saved.tensor(prefix + "." + params_[i]->name + ".residual"));
  }

 private:
  std::vector<Param*> params_;
  std::vector<std::int64_t> begins_;
  std::int64_t elements_ = 0;
  Tensor work_, residual_;
};

}  // namespace ab
