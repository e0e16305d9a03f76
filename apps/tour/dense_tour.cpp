// SPDX-License-Identifier: MIT
//
// Dense training, which stands beside the others; one of its gradients by PowerSGD; and its W, cut at many ranks.

#include <array>

#include "ablowrank/cut.h"
#include "ablowrank/loss_metric.h"
#include "apps/tour/tour.h"
#include "engine/backend/factorisations.h"
#include "engine/core/threads.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/random.h"
#include "engine/kernels/reduce.h"
#include "engine/ops/loss.h"
#include "engine/sync/dense.h"

namespace ab::tour {
namespace {

constexpr std::array kRanksShown{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256};

/// One step of PowerSGD (engine/sync/powersgd.h) without its residual: P = orth(G Q), Q = Gᵀ P, G ≈ P Qᵀ. Returns the new Q, and
/// the share of the square of G that P Qᵀ holds.   g: [n, m], q: [m, r], float64
std::pair<Tensor, double> power_step(const Tensor& g, const Tensor& q) {
  const Tensor p = orthonormal_columns(product(g, q));
  Tensor next = product(g, p, true, false);
  return {next, sum_of_squares(next) / sum_of_squares(g)};
}

/// Carries Q from step to step until kStep, and looks at that gradient.
void watch_gradient(const Tensor& gradient, std::int64_t step, std::uint64_t seed, Tensor& q, OneGradient& told) {
  if (step > OneGradient::kStep) return;
  const Tensor g = in_float64(gradient);
  if (step == 0) {
    q = Tensor({kPixels, OneGradient::kRank}, DType::float32);
    fill_normal(q, 0, 1, {seed, stream_of("tour.q")});
    q = in_float64(q);
  }
  if (step < OneGradient::kStep) {
    q = power_step(g, q).first;
    return;
  }
  const Tensor random({kPixels, OneGradient::kRank}, DType::float32);
  fill_normal(random, 0, 1, {seed, stream_of("tour.random")});
  told.from_random_q = power_step(g, in_float64(random)).second;
  told.from_old_q = power_step(g, q).second;
  told.sigma = decompose(gradient, nullptr).sigma.to_doubles();
  double all = 0;
  for (std::size_t i = 0; i < told.sigma.size(); ++i) {
    all += told.sigma[i] * told.sigma[i];
    if (i + 1 == OneGradient::kRank) told.best = all;
  }
  told.best /= all;
}

/// The outputs of W and their gradients, in 20 batches of all processes.
LossMetric observe(Network& model, const Pictures& train, std::int64_t step) {
  const CutObservers observers({&model.weight()});
  for (int i = 0; i < 20 * kProcesses; ++i) {
    const Pictures batch = train.batch(step + i / kProcesses, i % kProcesses);
    backward(softmax_cross_entropy(model.forward(Var(batch.x)), batch.labels));
  }
  return LossMetric(observers.of(0));
}

void cut_at_many_ranks(Network& model, const Tour& tour, std::int64_t step, TrainedWeight& told) {
  const Tensor w = model.weight().dense().value.value(), bias = model.bias().value.value();
  const Tensor kept_w = w.clone(), kept_bias = bias.clone();
  const LossMetric metric = observe(model, tour.train, step);
  const auto score_of = [&](const LowRank& parts) {
    const FactorPair pair = apply_gauge(parts, Gauge::split_sigma, true);
    w.copy_from(product(pair.outer, pair.inner));
    return score(model, tour.test);
  };
  for (const int r : kRanksShown) {
    CutAtRank cut{.r = r};
    cut.by_sigma = score_of(decompose(kept_w, r));
    bias.copy_from(add(kept_bias, metric.bias_change(kept_bias, r)));
    cut.by_loss = score_of(metric.cut(kept_w, r));
    bias.copy_from(kept_bias);
    told.cuts.push_back(cut);
  }
  w.copy_from(kept_w);
  told.w = kept_w;
  told.sensitivity = metric.increases();
}

}  // namespace

void train_dense(Tour& tour, Comm& world) {
  set_compute_threads(1);
  Story unused;
  Guide guide(tour, world, unused);
  const Inventory inventory = inventory_of(guide.model);
  DenseStrategy strategy({.params = inventory.params}, world);
  strategy.start(guide.state);
  Tensor q;
  for (;;) {
    if (guide.state.step % kNoteSteps == 0 && world.rank() == 0) {
      const int step = static_cast<int>(guide.state.step);
      tour.dense[step] = score(guide.model, tour.test);
      tour.dense_sent[step] = world.ledger().total().wire_bytes();
    }
    if (guide.state.step == tour.flags.steps()) break;
    guide.train_step(strategy);
    if (world.rank() == 0)  // the gradient of the update that was made
      watch_gradient(guide.model.weight().dense().value.grad(), guide.state.step - 1, tour.flags.seed, q,
                     tour.gradient);
  }
  strategy.set_gradient_exchange(false);
  if (world.rank() == 0) cut_at_many_ranks(guide.model, tour, guide.state.step, tour.trained);
}

}  // namespace ab::tour
