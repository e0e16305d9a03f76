// SPDX-License-Identifier: MIT
#include "ablowrank/groups/weighted_sum.h"

#include "engine/kernels/elementwise.h"

namespace ab {
std::size_t WeightedSum::add(const Tensor& tensor, double weight) {
  terms_.push_back({tensor, weight});
  return terms_.size() - 1;
}

void WeightedSum::run(Comm& comm) {
  if (terms_.empty()) return;
  std::int64_t total = 0, offset = 0;
  for (const Term& term : terms_) total += term.tensor.numel();
  const Tensor flat({total}, DType::float32, terms_.front().tensor.device());
  for (const auto& [tensor, weight] : terms_) {
    const Tensor piece = flat.slice(offset, offset + tensor.numel()).view(tensor.shape());
    offset += tensor.numel();
    if (weight == 0) {
      piece.set_zero();
    } else {
      piece.copy_from(tensor);
      scale_in_place(piece, weight);
    }
    results_.push_back(piece);
  }
  comm.all_reduce(flat, ReduceOp::sum);
  for (Tensor& result : results_) result = result.clone();  // so that none keeps the whole buffer alive
}

}  // namespace ab
