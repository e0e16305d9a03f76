// SPDX-License-Identifier: MIT
//
// A tour of AB-training (arXiv 2405.01067): four ranks, threads of this process, train a small network on drawn
// pictures, and its one large weight W goes through the whole method, as it does in a real run. ablowrank/README.md
// explains what this prints, line by line. Seconds on a CPU.

#include <array>
#include <cmath>
#include <cstdio>

#include "ablowrank/groups/ab_strategy.h"
#include "data/shape_images.h"
#include "engine/core/threads.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/reduce.h"
#include "engine/ops/loss.h"
#include "layers/linear.h"

namespace {

using namespace ab;

constexpr int kRanks = 4, kBatch = 32, kPixels = 256, kHidden = 256, kR = 64, kSteps = 560;
constexpr double kRate = 0.05;

/// logits = C gelu(W x).   x: [N, 256], W: [256, 256], which AB-training splits, C: [10, 256], which it does not
class Network final : public Composite {
 public:
  Var forward(const Var& x) override { return classifier_.forward(hidden_.forward(x, Activation::gelu)); }

 private:
  std::vector<Layer*> parts() override { return {&hidden_, &classifier_}; }
  Linear hidden_{"hidden", kPixels, kHidden, {}}, classifier_{"classifier", kHidden, 10, {}, ParamRole::always_sync};
};

struct Pictures {
  Tensor x, labels;  ///< [N, 256] grey values around 0; [N] int64
};

/// Shapes of ten kinds, 32×32 pixels in colour, made 16×16 in grey.
Pictures draw(Split split, int count) {
  Pictures all{Tensor::zeros({count, kPixels}), Tensor({count}, DType::int64)};
  std::array<std::uint8_t, kShapeImageBytes> planes;
  for (int i = 0; i < count; ++i) {
    draw_shape_image(0, split, i, planes);
    all.labels.data<std::int64_t>()[i] = shape_label(i);
    float* x = all.x.data<float>() + i * kPixels;
    for (int p = 0; p < static_cast<int>(planes.size()); ++p) {
      const int row = p / 32 % 32, column = p % 32;
      x[row / 2 * 16 + column / 2] += (planes[static_cast<std::size_t>(p)] - 110.0f) / (12 * 50);
    }
  }
  return all;
}

/// || now − before || / || before ||, in percent
double change(const Tensor& now, const Tensor& before) {
  const Tensor difference = now.clone();
  axpy(-1.0, before, difference);
  return 100 * std::sqrt(sum_of_squares(difference) / sum_of_squares(before));
}

/// One line: some singular values of W, the share of the first 64 in the sum of their squares, how many are not 0, and
/// the loss on pictures that training never sees.
void show(const char* what, Network& model, const Pictures& test) {
  const Tensor w = inventory_of(model).weights[0]->formed().value();
  const std::vector<double> sigma = decompose(w, nullptr, SvdMethod::direct).sigma.to_doubles();
  double all = 0, first = 0;
  int rank = 0;
  for (std::size_t i = 0; i < sigma.size(); ++i) {
    all += sigma[i] * sigma[i];
    if (i < kR) first = all;
    rank += sigma[i] > 1e-5 * sigma[0];
  }
  std::printf("%-24s", what);
  for (const std::size_t i : {1, 2, 4, 8, 16, 32, 64, 128}) std::printf(" %5.2f", sigma[i - 1]);
  const Var loss = softmax_cross_entropy(model.forward(Var(test.x)), test.labels);
  std::printf(" %6.0f %% %6d %6.2f\n", 100 * first / all, rank, loss.value().item());
}

/// One update of this rank's replica, on its own pictures.
void train_step(Network& model, const Pictures& train, const Comm& world, Optimizer& optimizer, SyncStrategy& strategy,
                TrainState& state) {
  const std::int64_t begin = (state.step * kRanks + world.rank()) * kBatch % train.x.dim(0);
  const Var logits = model.forward(Var(train.x.slice(begin, begin + kBatch)));
  optimizer.clear_grads();
  backward(softmax_cross_entropy(logits, train.labels.slice(begin, begin + kBatch)));
  strategy.finish_grads(state);
  optimizer.step(strategy.learning_rate(kRate, state.step));
  ++state.step;
}

void show_traffic(const Ledger& ledger) {
  std::printf("\nRank 0 sent  collectives       kB  kB each\n");
  for (const auto& [phase, sent] : ledger.by_phase())
    if (sent.wire_bytes() > 0)
      std::printf("%-12s %11d %8.0f %8.1f\n", phase.c_str(), static_cast<int>(sent.calls), sent.wire_bytes() / 1e3,
                  sent.wire_bytes() / 1e3 / static_cast<double>(sent.calls));
}

void tour(Comm& world, const Pictures& train, const Pictures& test, std::array<Tensor, kRanks>& w_of_rank) {
  set_compute_threads(1);
  const auto me = static_cast<std::size_t>(world.rank());
  Network model;
  Weight& weight = *inventory_of(model).weights[0];
  const auto optimizer = make_sgd(inventory_of(model).params, {.momentum = 0.9});
  AbOptions options;
  options.schedule = {.first_split = 400, .cycle_steps = 100, .full_rank_steps = 20};
  options.rank_policy.ratio = static_cast<double>(kR) / kHidden;
  AbStrategy strategy(model, world, options, LrSchedule{.peak = kRate});
  TrainState state{0, *optimizer};
  strategy.start(state);

  const auto say = [&](const auto&... words) {
    if (me == 0) std::printf(words...);
  };
  const auto show_on = [&](std::size_t rank, const char* what) {
    world.ledger().set_phase("shown");
    if (me == rank) show(what, model, test);
    world.barrier();
  };
  say("%-23s   s_1   s_2   s_4   s_8  s_16  s_32  s_64 s_128 first 64   rank   loss\n", "W [256 x 256]");
  show_on(0, "as drawn");

  Tensor a, b;  // as the split left them
  while (state.step < kSteps) {
    world.ledger().set_phase(strategy.phase());
    train_step(model, train, world, *optimizer, strategy, state);
    const Transition turn = options.schedule.transition_at(state.step);
    if (turn == Transition::split) {
      show_on(0, state.step == 400 ? "400 steps of warm-up" : "20 steps of rebound");
    } else if (turn == Transition::sync) {
      say("Low rank, 80 steps: each group trains its factor on its own.\n");
      show_on(0, "rank 0, trained A");
      show_on(2, "rank 2, trained B");
      w_of_rank[me] = weight.formed().value().clone();
      world.barrier();
      say("Rank 0: A changed by %.0f %%, B by %.0f %%. W differs by %.0f %% from rank 1's, by %.0f %% from rank 2's.\n",
          change(weight.a().value.value(), a), change(weight.b().value.value(), b), change(w_of_rank[1], w_of_rank[0]),
          change(w_of_rank[2], w_of_rank[0]));
    }
    strategy.after_step(state);
    const int step = static_cast<int>(state.step);
    if (turn == Transition::split) {
      a = weight.a().value.value().clone(), b = weight.b().value.value().clone();
      say("\nSplit at step %d: W = U S V, cut to 64 directions. Ranks 0, 1 train A = U S, ranks 2, 3 B = S V.\n", step);
      show_on(0, "cut to r = 64");
    } else if (turn == Transition::sync) {
      say("Rejoin at step %d: W = A V + U B - 1/2 U (U' A + B V') V.\n", step);
      show_on(0, "rejoined, on all ranks");
    }
  }
  strategy.finish(state);
  say("Low rank, %d steps; the end: rejoined once more, and cut to factors of 2 x %d numbers instead of %d.\n",
      kSteps - 500, static_cast<int>(weight.a().numel()), kHidden * kPixels);
  show_on(0, "the model");
  if (me == 0) show_traffic(world.ledger());
}

}  // namespace

int main() {
  try {
    const Pictures train = draw(Split::train, 16384), test = draw(Split::test, 1024);
    std::array<Tensor, kRanks> w_of_rank;
    run_thread_ranks(kRanks, {}, [&](Comm& world) { tour(world, train, test, w_of_rank); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lowrank_tour: %s\n", error.what());
    return 1;
  }
}
