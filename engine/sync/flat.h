#pragma once
// SPDX-License-Identifier: MIT
//
// Many small tensors as one flat buffer, because a collective has a price of its own, whatever its size. The tensors lie on one
// device, and so does the buffer.

#include <vector>

#include "engine/autograd/var.h"
#include "engine/comm/comm.h"
#include "engine/core/tensor.h"
#include "engine/io/state_dict.h"

namespace ab {

/// Every tensor of every rank, through one buffer per element type, takes the values it has on `root`.
void broadcast_flat(Comm& comm, const std::vector<Tensor>& tensors, int root);

/// In place, over all ranks of `comm`.
void all_reduce_flat(Comm& comm, const std::vector<Tensor>& tensors, ReduceOp op);

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

/// Means of parameters over ranks whose replicas have drifted apart. In 16 bits the parameters themselves must not
/// travel, as small updates would be lost in rounding them; there the ranks send how far each has come from a reference
/// r that all of them hold, the model that they last had in common:
///   float32   θ ← mean over ranks of θ          16 bits   θ ← r + mean over ranks of (θ − r)
class ParameterMean {
 public:
  /// `wire`: the type that travels. `params` are float32 on one device, equal on all ranks now, and outlive this.
  ParameterMean(std::vector<Tensor> params, DType wire);

  bool in_16_bits() const { return wire_ != DType::float32; }
  const std::vector<Tensor>& params() const { return params_; }

  /// The mean over the ranks of `comm`, flat; this rank's parameters count `weight` times. One all-reduce.
  Tensor over(Comm& comm, double weight = 1) const;
  /// All ranks hold the present parameters.
  void agree();

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
  FlatGradients(std::vector<Param*> params, bool with_residual, std::int64_t multiple = 1);

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
  void gather() const;
  /// Every parameter's gradient becomes its part of work.
  void hand_over() const;

  /// Residuals as "PREFIX.PARAMETER.residual".
  void save(StateDict& state, const std::string& prefix) const;
  void load(const StateDict& saved, const std::string& prefix);

 private:
  std::vector<Param*> params_;
  std::vector<std::int64_t> begins_;
  std::int64_t elements_ = 0;
  Tensor work_, residual_;
};

}  // namespace ab
