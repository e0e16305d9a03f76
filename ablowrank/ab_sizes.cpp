// SPDX-License-Identifier: MIT
#include "ablowrank/ab_sizes.h"

#include <algorithm>

#include "ablowrank/split.h"
#include "layers/model_sizes.h"

namespace ab {

AbSizes::AbSizes(Layer& model, std::vector<std::int64_t> r_after_cut)
    : dense(sizes_of(model)), eligible(eligible_weights(model)), cut_r(std::move(r_after_cut)) {
  AB_CHECK(cut_r.size() == eligible.size(), "the plan has {} ranks for {} weights that can be split", cut_r.size(),
           eligible.size());
  for (std::size_t i = 0; i < eligible.size(); ++i) {
    AB_ASSERT(!eligible[i]->factored());
    AB_CHECK(cut_r[i] >= 1 && cut_r[i] <= eligible[i]->n(), "{} has {} singular values, so its rank cannot be {}",
             eligible[i]->name(), eligible[i]->n(), cut_r[i]);
  }
  const Inventory inventory = inventory_of(model);
  for (const Buffer& buffer : inventory.buffers) shared += buffer.value.numel();
  for (const Param* p : inventory.params) {
    const auto at = std::find_if(eligible.begin(), eligible.end(), [&](Weight* w) { return p == &w->dense(); });
    owner.emplace_back();
    if (at != eligible.end()) {
      owner.back() = static_cast<std::size_t>(at - eligible.begin());
      continue;
    }
    shared += p->numel();
    if (p->trainable()) shared_trained += p->numel();
  }
}

}  // namespace ab
