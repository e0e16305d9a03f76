// SPDX-License-Identifier: MIT
//
// The late cut (ablowrank/late_cut.h): an ordinary training loop around LateCutStrategy.

#include <algorithm>

#include "ablowrank/late_cut.h"
#include "apps/tour/tour.h"
#include "engine/core/threads.h"
#include "engine/kernels/elementwise.h"
#include "engine/sync/powersgd.h"

namespace ab::tour {
namespace {

/// How many directions hold 99.5 % of the squares of singular values.
int directions_held(const std::vector<double>& sigma) {
  double all = 0, held = 0;
  for (const double s : sigma) all += s * s;
  const auto enough = [&](double s) { return (held += s * s) >= 0.995 * all; };
  return 1 + static_cast<int>(std::ranges::find_if(sigma, enough) - sigma.begin());
}

std::unique_ptr<SyncStrategy> power_sgd(Replica replica, Comm& world, std::int64_t dense_steps, std::uint64_t seed) {
  return std::make_unique<PowerSgdStrategy>(std::move(replica), world, PowerSgdOptions{{.rank = 0.25, .min_rate = 1.5}},
                                            CompressionStart{.dense_steps = dense_steps, .seed = seed});
}

/// The loss of a model with another W, or another bias, in the layer that the cut is about.
double loss_with(const Tour& tour, Network& of, const Tensor& w, const Tensor& bias) {
  Network other(tour.flags.seed);
  const Inventory from = inventory_of(of), to = inventory_of(other);
  for (Param* param : to.params)
    for (const Param* same : from.params)
      if (same->name == param->name) param->value.value().copy_from(same->value.value());
  other.weight().dense().value.value().copy_from(w);
  other.bias().value.value().copy_from(bias);
  return score(other, tour.test).loss;
}

void tell_cut(Tour& tour, Guide& guide, const Tensor& w, const Tensor& bias) {
  Network& model = guide.model;
  const auto r = static_cast<int>(model.weight().r());
  tour.cut_r = r;
  const FactorPair by_sigma = apply_gauge(decompose(w, r), Gauge::split_sigma, true);
  const Tensor cut = model.weight().formed().value();
  guide.say(fmt::format(
      "Loss with the new bias {:.3f}, with the old one {:.3f}; with the {} strongest directions of W in place "
      "of P W {:.3f}.",
      score(model, tour.test).loss, loss_with(tour, model, cut, bias), r,
      loss_with(tour, model, product(by_sigma.outer, by_sigma.inner), bias)));
}

void tell_gradient(const Tour& tour, const Guide& guide) {
  const OneGradient& g = tour.gradient;
  guide.say(
      fmt::format("One gradient of W, step {}: {} of 256 directions hold {:.0f} % of its square. PowerSGD sends P and "
                  "Q, {} numbers instead of 65536,\nand they hold {:.0f} % where Q begins at random, {:.0f} % where it "
                  "is that of the step before. The rest waits for the next step.",
                  OneGradient::kStep, OneGradient::kRank, 100 * g.best, 2 * OneGradient::kRank * kPixels,
                  100 * g.from_random_q, 100 * g.from_old_q));
}

}  // namespace

void train_late_cut(Tour& tour, Comm& world) {
  set_compute_threads(1);
  const Flags& flags = tour.flags;
  const std::int64_t steps = flags.steps();
  Guide guide(tour, world, tour.late_cut);
  Weight& weight = guide.model.weight();
  TrainState& state = guide.state;
  LateCutOptions options{.at = {static_cast<double>(flags.warmup) / static_cast<double>(steps)}};
  if (flags.r > 0) options.rank_policy = RanksBy::ratio, options.keep = {static_cast<double>(flags.r) / kHidden};
  LateCutStrategy strategy(guide.model, world, options, CutSchedule(options, steps, 2 * steps),
                           power_sgd({.params = inventory_of(guide.model).params}, world, steps / 10, flags.seed),
                           [&](Replica factors) { return power_sgd(std::move(factors), world, 0, flags.seed); });
  strategy.start(state);
  guide.say_columns();
  guide.show("as drawn", strategy.phase());
  tell_gradient(tour, guide);

  while (state.step < steps) {
    const std::string phase = strategy.phase();
    guide.train_step(strategy);
    const bool cut = state.step == flags.warmup;
    if (!cut) guide.note(phase, false);
    else guide.show(fmt::format("{} steps of PowerSGD", state.step), phase);
    const Tensor w = weight.factored() ? Tensor() : weight.dense().value.value().clone();
    const Tensor bias = guide.model.bias().value.value().clone();
    strategy.after_step(state);
    if (!cut) continue;
    guide.say(fmt::format("\nCut at step {}: 99.5 % of the squares of s lie in {} directions{}.", state.step,
                          directions_held(decompose(w, nullptr).sigma.to_doubles()),
                          flags.r > 0 ? "" : fmt::format("; the cut by the loss keeps {}", weight.r())));
    guide.show(fmt::format("P W, r = {}, new bias", weight.r()), "cut");
    if (world.rank() == 0) tell_cut(tour, guide, w, bias);
  }
  strategy.finish(state);
  guide.say(fmt::format("Low rank, {} steps: all processes train A and B, {} + {} numbers instead of {}.",
                        steps - flags.warmup, weight.a().numel(), weight.b().numel(), kHidden * kPixels));
  guide.show("the model", "end");
  show_traffic(world);
}

}  // namespace ab::tour
