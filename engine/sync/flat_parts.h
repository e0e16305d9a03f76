#pragma once
// SPDX-License-Identifier: MIT
//
// Tensors of one type as consecutive parts of a flat buffer, where the buffer outlives one collective (flat.h has those
// of a single one).

#include <vector>

#include "engine/core/tensor.h"

namespace ab {

/// An uninitialised buffer for all of them. All are of one type and on one device.
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

}  // namespace ab
