// SPDX-License-Identifier: MIT
#include "layers/model_sizes.h"

#include "engine/sync/flat.h"

namespace ab {

ModelSizes sizes_of(Layer& model) {
  const Inventory inventory = inventory_of(model);
  ModelSizes sizes;
  std::vector<Tensor> tensors;
  for (const Buffer& buffer : inventory.buffers) tensors.push_back(buffer.value);
  sizes.buffers_by_type = elements_by_type(tensors);
  for (const Param* p : inventory.params) {
    tensors.push_back(p->value.value());
    sizes.params.push_back({p->numel(), p->trainable()});
  }
  sizes.model_by_type = elements_by_type(tensors);
  return sizes;
}

}  // namespace ab
