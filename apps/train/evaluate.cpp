// SPDX-License-Identifier: MIT
#include "apps/train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "apps/train/learner.h"
#include "data/batch_feed.h"
#include "engine/comm/texts.h"
#include "engine/core/threads.h"
#include "engine/ops/loss.h"

namespace ab {
namespace {

constexpr std::int64_t kBatchPixels = std::int64_t{1} << 22;  // bounds the memory for large images

std::int64_t batch_size(std::int64_t image_size) {
  return std::clamp<std::int64_t>(kBatchPixels / (image_size * image_size), 1, 250);
}

enum { kLoss, kTop1, kTop5, kSamples, kSums };

void add_batch(const Var& logits, const Batch& batch, double* sum) {
  const double count = static_cast<double>(batch.count());
  sum[kLoss] += softmax_cross_entropy(logits, batch.labels).value().item(0) * count;
  for (double position : label_positions(logits.value(), batch.labels).to_doubles(0)) {
    sum[kTop1] += position < 1;
    sum[kTop5] += position < 5;
  }
  sum[kSamples] += count;
}

/// Nothing, and why, where an image cannot be had.
std::optional<Batch> next_batch(BatchFeed& feed, std::string& failure) {
  try {
    return feed.next();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::data) throw;
    failure = error.what();
    return {};
  }
}

}  // namespace

std::int64_t evaluation_batches(std::int64_t samples, std::int64_t image_size, int ranks) {
  const std::int64_t batches = (samples + batch_size(image_size) - 1) / batch_size(image_size);
  return (batches + ranks - 1) / ranks;
}

std::optional<Evaluation> evaluate(Layer& model, const Dataset& set, Comm& world, std::int64_t image_size,
                                   Precision precision, StopAgreement* stop, double stall_timeout_seconds) {
  const NoGradScope no_grad;
  const Tf32Scope tf32(precision);
  model.set_training(false);
  LoaderOptions options;
  const std::int64_t side = image_size > 0 ? image_size : set.height;
  options.batch_size = batch_size(side);
  options.rank = world.rank();
  options.world_size = world.size();
  options.training = false;
  options.image_size = static_cast<int>(image_size);
  options.threads = compute_threads();
  options.stall_timeout_seconds = stall_timeout_seconds;
  BatchFeed feed(set, options, device_of(model), activation_type(precision));
  feed.start_epoch(0);

  std::string failure;  // of this rank, which goes on asking until all can be told
  const Tensor sums = Tensor::zeros({kSums}, DType::float64);
  double* sum = sums.data<double>();
  bool stopped = false;
  const bool rehearses = device_of(model).kind == DeviceKind::shapes;
  std::int64_t rehearsed = 0;  // images of the batch that was looked at last: one of each size is enough
  for (std::int64_t i = evaluation_batches(set.count, side, world.size()); i > 0 && !stopped; --i) {
    if (stop) stop->ask();
    if (const auto batch = failure.empty() ? next_batch(feed, failure) : std::nullopt;
        batch && batch->count() != rehearsed) {
      if (rehearses) rehearsed = batch->count();
      const Var logits = model.forward(Var(batch->images));
      feed.prefetch();
      add_batch(logits, *batch, sum);
    }
    stopped = stop && stop->agreed_by_now();
  }
  model.set_training(true);
  if (stopped) return std::nullopt;
  if (rehearses) sum[kSamples] = static_cast<double>(set.count);  // by all ranks
  if (!failure.empty()) sum[kSamples] = std::numeric_limits<double>::quiet_NaN();
  world.all_reduce(sums, ReduceOp::sum);
  if (std::isnan(sum[kSamples])) throw EvaluationError(first_failure(world, failure));
  AB_CHECK_KIND(data, sum[kSamples] > 0, "{}: there are no images to evaluate on", set.name);
  return Evaluation{sum[kLoss] / sum[kSamples], sum[kTop1] / sum[kSamples], sum[kTop5] / sum[kSamples],
                    static_cast<std::int64_t>(sum[kSamples])};
}

}  // namespace ab
