#pragma once
// SPDX-License-Identifier: MIT
//
// The gradients of some parameters as one vector, in forward order, for methods that select from all of them together.

#include <vector>

#include "engine/autograd/param.h"
#include "engine/io/state_dict.h"

namespace ab {

class FlatGradients {
 public:
  /// The vector ends with zeros up to a multiple of `multiple`. Without a residual of each element it takes half the
  /// memory.
  FlatGradients(std::vector<Param*> params, bool with_residual, std::int64_t multiple = 1);

  std::int64_t elements() const { return elements_; }   ///< those of parameters
  const Tensor& work() const { return work_; }          ///< [elements() and padding] M, then Ĝ
  const Tensor& residual() const { return residual_; }  ///< the same, E of this rank
  /// Parameter i begins at element begin(i).
  const std::vector<Param*>& params() const { return params_; }
  std::int64_t begin(std::size_t i) const { return begins_[i]; }

  /// work = G + E, or G where there is no residual. A gradient that has not arrived counts as zeros.
  void gather() const;
  /// Every parameter's gradient becomes its part of work.
  void hand_over() const;

  /// Residuals as "PREFIX.PARAMETER.residual".
  void save(StateDict& state, const std::string& prefix) const;
  void load(const StateDict& saved, const std::string& prefix);

 private:
  Tensor part(const Tensor& flat, std::size_t i) const;

  std::vector<Param*> params_;
  std::vector<std::int64_t> begins_;
  std::int64_t elements_ = 0;
  Tensor work_, residual_;
};

}  // namespace ab
