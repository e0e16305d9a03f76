// SPDX-License-Identifier: MIT
#include "apps/train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <list>

#include "apps/train/learner.h"
#include "data/batch_feed.h"
#include "engine/comm/texts.h"
#include "engine/kernels/elementwise.h"
#include "engine/ops/loss.h"

namespace ab {
namespace {

constexpr std::int64_t kBatchPixels = std::int64_t{1} << 22;  // bounds the memory for large images

std::int64_t batch_size(std::int64_t image_size) {
  return std::clamp<std::int64_t>(kBatchPixels / (image_size * image_size), 1, 250);
}

enum { kLoss, kTop1, kTop5, kSamples, kSums };

void add_batch(const Tensor& logits, const Tensor& labels, double* sum) {
  const double count = static_cast<double>(labels.numel());
  sum[kLoss] += softmax_cross_entropy(Var(logits), labels).value().item(0) * count;
  for (double position : label_positions(logits, labels).to_doubles(0)) {
    sum[kTop1] += position < 1;
    sum[kTop5] += position < 5;
  }
  sum[kSamples] += count;
}

/// All images, moved in one way, and the weight of what the model says to them.
struct View {
  BatchFeed feed;
  double weight;
};

std::list<View> views_of(const Dataset& set, LoaderOptions options, Device device, DType activations, bool all) {
  std::list<View> views;
  if (all) options.threads = std::max(1, options.threads / 6), options.prefetch = 1;
  const auto add = [&](int shift, bool flip, double weight) {
    options.view = {.dy = shift, .dx = shift, .flip = flip, .reflects = shift != 0};
    views.push_back({BatchFeed(set, options, device, activations), weight});
  };
  if (!all) add(0, false, 1);
  for (const int shift : {0, -1, 1})
    for (const bool flip : {false, true})
      if (all) add(shift, flip, shift == 0 ? 0.25 : 0.125);
  return views;
}

/// Adds the logits of a view to those of others, which may be undefined.
void add_view(const Tensor& of_view, double weight, Tensor& logits) {
  if (weight == 1) {
    logits = of_view;
    return;
  }
  if (!logits.defined()) logits = Tensor::zeros(of_view.shape(), DType::float32, of_view.device());
  axpy(weight, cast(of_view, DType::float32), logits);
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

/// How often the ranks ask each other whether to stop: batches of the rank that has most.
std::int64_t most_batches(std::int64_t samples, std::int64_t image_size, int ranks) {
  const std::int64_t batches = (samples + batch_size(image_size) - 1) / batch_size(image_size);
  return (batches + ranks - 1) / ranks;
}

}  // namespace

std::optional<Evaluation> evaluate(Layer& model, const Dataset& set, Comm& world, const EvaluationOptions& options) {
  const NoGradScope no_grad;
  const Tf32Scope tf32(options.precision);
  model.set_training(false);
  LoaderOptions loading;
  const std::int64_t side = options.image_size > 0 ? options.image_size : set.height;
  loading.batch_size = batch_size(side);
  loading.rank = world.rank();
  loading.world_size = world.size();
  loading.training = false;
  loading.image_size = static_cast<int>(options.image_size);
  loading.framing = options.framing;
  loading.threads = options.loader_threads;
  loading.stall_timeout_seconds = options.stall_timeout_seconds;
  loading.bad_images = options.bad_images;
  std::list<View> views = views_of(set, loading, device_of(model), activation_type(options.precision), options.views);
  for (View& view : views) view.feed.start_epoch(0);

  std::string failure;  // of this rank, which goes on asking until all can be told
  const Tensor sums = Tensor::zeros({kSums}, DType::float64);
  double* sum = sums.data<double>();
  bool stopped = false;
  const bool rehearses = device_of(model).kind == DeviceKind::shapes;
  std::int64_t rehearsed = 0;  // images of the batch that was looked at last: one of each size is enough
  for (std::int64_t i = most_batches(set.count, side, world.size()); i > 0 && !stopped; --i) {
    if (options.stop) options.stop->ask();
    Tensor logits;
    std::optional<Batch> batch;
    for (View& view : views) {
      batch = failure.empty() ? next_batch(view.feed, failure) : std::nullopt;
      if (!batch || batch->count() == rehearsed) continue;
      if (logits.defined() && logits.dim(0) != batch->count()) {
        failure = fmt::format("{}: an image could be read for one view of it and not for another", set.name);
        continue;
      }
      add_view(model.forward(Var(batch->images)).value(), view.weight, logits);
      view.feed.prefetch();
    }
    if (batch && failure.empty() && batch->count() != rehearsed) {
      add_batch(logits, batch->labels, sum);
      if (rehearses) rehearsed = batch->count();
    }
    stopped = options.stop && options.stop->agreed_by_now();
  }
  model.set_training(true);
  if (stopped) return std::nullopt;
  if (rehearses) sum[kSamples] = static_cast<double>(set.count);  // by all ranks
  if (!failure.empty()) sum[kSamples] = std::numeric_limits<double>::quiet_NaN();
  world.all_reduce(sums, ReduceOp::sum);
  if (std::isnan(sum[kSamples])) throw EvaluationError(first_failure(world, failure));
  if (sum[kSamples] == 0)
    throw EvaluationError(fmt::format("{}: none of the {} images to evaluate on could be read", set.name, set.count));
  const auto samples = static_cast<std::int64_t>(sum[kSamples]);
  return Evaluation{sum[kLoss] / sum[kSamples], sum[kTop1] / sum[kSamples], sum[kTop5] / sum[kSamples], samples,
                    set.count - samples};
}

}  // namespace ab
