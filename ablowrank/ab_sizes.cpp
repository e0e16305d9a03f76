// SPDX-License-Identifier: MIT
#include "ablowrank/ab_sizes.h"

#include <algorithm>

#include "ablowrank/split.h"
#include "layers/model_sizes.h"

namespace ab {

AbSizes::AbSizes(Layer& model, CutRanks ranks)
    : dense(sizes_of(model)), eligible(eligible_weights(model)), cut(std::move(ranks)) {
  AB_ASSERT(!cut.splits.empty());
  if (cut.at_the_end.empty()) cut.at_the_end = cut.splits.back();
  for (const Weight* weight : eligible) AB_ASSERT(!weight->factored());
  const auto check = [this](const std::vector<std::int64_t>& r) {
    AB_CHECK(r.size() == eligible.size(), "the plan has {} ranks for {} weights that can be split", r.size(),
             eligible.size());
    for (std::size_t i = 0; i < eligible.size(); ++i)
      AB_CHECK(r[i] >= 1 && r[i] <= eligible[i]->n(), "{} has {} singular values, so its rank cannot be {}",
               eligible[i]->name(), eligible[i]->n(), r[i]);
  };
  for (const std::vector<std::int64_t>& split : cut.splits) check(split);
  check(cut.at_the_end);
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
