// SPDX-License-Identifier: MIT
#include "ablowrank/model_sizes.h"

#include <algorithm>

#include "ablowrank/split.h"
#include "engine/sync/flat.h"

namespace ab {

ModelSizes::ModelSizes(Layer& model, std::vector<std::int64_t> ranks, bool low_rank)
    : cut_ranks(std::move(ranks)) {
  if (low_rank) eligible = eligible_weights(model);
  AB_CHECK(!low_rank || cut_ranks.size() == eligible.size(),
           "the plan has {} ranks for {} weights that can be split", cut_ranks.size(), eligible.size());
  for (std::size_t i = 0; i < eligible.size(); ++i) {
    AB_ASSERT(!eligible[i]->factored());
    AB_CHECK(cut_ranks[i] >= 1 && cut_ranks[i] <= eligible[i]->n(),
             "{} has {} singular values; a rank of {} is not possible", eligible[i]->name(), eligible[i]->n(),
             cut_ranks[i]);
  }

  const Inventory inventory = inventory_of(model);
  std::vector<Tensor> buffers;
  for (const Buffer& buffer : inventory.buffers) {
    buffers.push_back(buffer.value);
    shared += buffer.value.numel();
  }
  buffers_by_type = elements_by_type(buffers);
  std::vector<Tensor> all = buffers;
  for (const Param* p : inventory.params) {
    all.push_back(p->value.value());
    PlannedParam& planned = params.emplace_back(PlannedParam{p->numel(), p->trainable()});
    const auto owner =
        std::find_if(eligible.begin(), eligible.end(), [&](Weight* w) { return p == &w->dense(); });
    if (owner != eligible.end()) {
      planned.weight = static_cast<std::size_t>(owner - eligible.begin());
      continue;
    }
    shared += planned.elements;
    if (planned.trainable) shared_trained += planned.elements;
  }
  model_by_type = elements_by_type(all);
}

}  // namespace ab
