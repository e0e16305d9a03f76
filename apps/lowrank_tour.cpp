// SPDX-License-Identifier: MIT
//
// A tour of AB-training in one file: four ranks as threads of this process take one weight W through a cycle
// (split, independent training of A and B, rejoin) and print what they hold and what they send. Seconds on a
// CPU. The task is linear regression: find W* from y = W* x, so every number can be followed by hand.

#include <cmath>
#include <cstdio>
#include <mutex>

#include "ablowrank/groups.h"
#include "ablowrank/join.h"
#include "ablowrank/split.h"
#include "engine/comm/comm.h"
#include "engine/core/threads.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/random.h"
#include "engine/kernels/reduce.h"
#include "engine/ops/linear.h"
#include "engine/optim/optimizer.h"

namespace {

using namespace ab;

constexpr std::int64_t kOut = 48, kIn = 32, kBatch = 64;

Tensor normal(const Shape& shape, double stddev, std::uint64_t stream) {
  Tensor t(shape);
  fill_normal(t, 0.0f, static_cast<float>(stddev), Philox{2405, stream});
  return t;
}

/// W*: four strong directions and a weak rest.
Tensor target() {
  return add(product(normal({kOut, 4}, 1.0, 1), normal({4, kIn}, 1.0, 2)), normal({kOut, kIn}, 0.1, 3));
}

double distance(const Tensor& a, const Tensor& b) {
  const Tensor d = a.clone();
  axpy(-1.0, b, d);
  return std::sqrt(sum_of_squares(d) / sum_of_squares(b));
}

/// One gradient step on || W x − W* x ||² / (2 · batch), the gradient averaged over `group`.
void train_step(Weight& weight, Optimizer& optimizer, Comm& group, const Tensor& wanted, std::uint64_t stream) {
  const Tensor x = normal({kBatch, kIn}, 1.0, stream);
  const Var w = weight.factored() ? matmul(weight.outer().value, weight.inner().value) : weight.dense().value;
  const Var y = linear(Var(x), w, {});
  const Tensor error = y.value().clone();
  axpy(-1.0, linear_forward(x, wanted, {}), error);
  scale_in_place(error, 1.0 / kBatch);
  optimizer.clear_grads();
  backward(record("half_squared_error", Tensor::scalar(0.5 * sum_of_squares(error) * kBatch), {y},
                  [error](const Tensor&) { return Gradients{error}; }));
  for (Param* p : optimizer.params())
    if (p->trainable()) group.all_reduce(p->value.grad(), ReduceOp::mean);
  optimizer.step(0.3);
}

void tour(Comm& world) {
  set_compute_threads(1);
  const auto say = [&](const auto&... words) {
    if (world.rank() == 0) std::printf(words...);
  };
  const Tensor wanted = target();
  Weight weight("W", Tensor::zeros({kOut, kIn}), ParamRole::weight);
  const auto optimizer = make_sgd({&weight.dense()}, {.momentum = 0.0, .weight_decay = 0.0});
  std::uint64_t stream = 1000 * static_cast<std::uint64_t>(world.rank() + 1);  // every rank sees its own samples

  say("1. Warm-up: all four ranks train W (%lld x %lld) and average its gradient.\n", static_cast<long long>(kOut),
      static_cast<long long>(kIn));
  world.ledger().set_phase("warm-up");
  for (int step = 0; step < 4; ++step) train_step(weight, *optimizer, world, wanted, ++stream);
  say("   after 4 steps: distance to W* %.3f\n\n", distance(weight.dense().value.value(), wanted));

  const std::vector<RankGroup> groups = make_groups(world.size(), -1, false);
  const RankGroup mine = groups[static_cast<std::size_t>(group_of(groups, world.rank()))];
  const auto group = world.split(group_of(groups, world.rank()), "group");
  const RankPolicy policy{.kind = RankPolicy::Kind::ratio, .ratio = 0.25};
  const Trainers trainers{trainers_of(groups, Factor::a, 0), trainers_of(groups, Factor::b, 0), world.size()};

  for (int cycle = 0; cycle < 3; ++cycle) {
    world.ledger().set_phase("split");
    LowRank parts = decompose_all({&weight}, &policy, SvdMethod::gram, world)[0];
    const std::vector<double> sigma = parts.sigma.to_doubles();
    say("%d. Split: one rank decomposes W, all receive U, sigma and V, cut to r = %lld (sigma %.2f ... %.2f).\n",
        2 + 2 * cycle, static_cast<long long>(parts.r()), sigma.front(), sigma.back());
    const bool trains_a = mine.trains == Factor::a;
    FactorPair pair = apply_gauge(parts, Gauge::orthonormal, trains_a != weight.transposed());
    weight.factorise(pair.outer, pair.inner, trains_a ? Weight::Mode::train_a : Weight::Mode::train_b);
    optimizer->set_params({&weight.a(), &weight.b()});

    world.ledger().set_phase("low-rank");
    for (int step = 0; step < 8; ++step) train_step(weight, *optimizer, *group, wanted, ++stream);
    std::printf("   rank %d trained %s for 8 steps with %d rank(s) of its group: distance %.3f\n", world.rank(),
                trains_a ? "A" : "B", group->size() - 1,
                distance(fold(weight.outer().value.value(), weight.inner().value.value()), wanted));
    world.barrier();

    world.ledger().set_phase("sync");
    WeightedSum sum;
    const Join join({&weight, parts}, weight.outer().value.value(), weight.inner().value.value(), SyncMode::tangent,
                    trainers, sum);
    sum.run(world);
    weight.restore(join.dense(sum));
    optimizer->set_params({&weight.dense()});
    say("%d. Rejoin and rebound: both groups' progress in one W: distance %.3f", 3 + 2 * cycle,
        distance(weight.dense().value.value(), wanted));
    world.ledger().set_phase("rebound");
    for (int step = 0; step < 2; ++step) train_step(weight, *optimizer, world, wanted, ++stream);
    say("; after 2 full-rank steps %.3f\n\n", distance(weight.dense().value.value(), wanted));
  }

  say("What rank 0 sent, by phase (ring formula, bytes):\n");
  for (const auto& [phase, entry] : world.ledger().by_phase())
    say("   %-9s %4lld collectives  %8.0f bytes\n", phase.c_str(), static_cast<long long>(entry.calls),
        entry.wire_bytes());
}

}  // namespace

int main() {
  try {
    ab::run_thread_ranks(4, {}, tour);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lowrank_tour: %s\n", error.what());
    return 1;
  }
}
