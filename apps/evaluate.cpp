// SPDX-License-Identifier: MIT
#include "apps/evaluate.h"

#include "data/loader.h"
#include "engine/ops/loss.h"

namespace ab {

Evaluation evaluate(Layer& model, const ImageSet& set, Comm& world) {
  const NoGradScope no_grad;
  model.set_training(false);
  LoaderOptions options;
  options.batch_size = 250;
  options.rank = world.rank();
  options.world_size = world.size();
  options.training = false;
  Loader loader(set, options);
  loader.start_epoch(0);

  enum { kLoss, kTop1, kTop5, kSamples, kSums };
  const Tensor sums = Tensor::zeros({kSums}, DType::float64);
  double* sum = sums.data<double>();
  while (const auto batch = loader.next()) {
    const Var logits = model.forward(Var(batch->images));
    const double count = static_cast<double>(batch->count());
    sum[kLoss] += softmax_cross_entropy(logits, batch->labels).value().item() * count;
    for (double position : label_positions(logits.value(), batch->labels).to_doubles()) {
      sum[kTop1] += position < 1;
      sum[kTop5] += position < 5;
    }
    sum[kSamples] += count;
  }
  world.all_reduce(sums, ReduceOp::sum);
  model.set_training(true);
  AB_CHECK_KIND(data, sum[kSamples] > 0, "{}: there are no images to evaluate on", set.name);
  return {sum[kLoss] / sum[kSamples], sum[kTop1] / sum[kSamples], sum[kTop5] / sum[kSamples],
          static_cast<std::int64_t>(sum[kSamples])};
}

}  // namespace ab
