// SPDX-License-Identifier: MIT
//
// DiLoCo against what can be computed by hand, and Streaming DiLoCo against a second implementation in double; what it
// has in common with other methods is in strategy_laws_test.cpp.
#include <gtest/gtest.h>

#include "apps/methods/method.h"
#include "apps/plan/plan.h"
#include "apps/settings/config.h"
#include "engine/sync/diloco.h"
#include "layers/models/models.h"

namespace ab {
namespace {

constexpr std::int64_t kDilocoSizes[] = {6, 2, 3, 5};  // of the parameters

/// Each rank descends towards a target of its own, another for every parameter; a step at rate 1/2 halves the distance.
class InnerSteps {
 public:
  InnerSteps(Comm& comm, const DilocoOptions& options) : comm_(comm), buffer_(filled(1, 7.0f * comm.rank())) {
    for (std::size_t i = 0; i < std::size(kDilocoSizes); ++i)
      params_.push_back({fmt::format("p{}", i), Var(filled(kDilocoSizes[i], static_cast<float>(comm.rank())), true)});
    std::vector<Param*> all;
    for (Param& p : params_) all.push_back(&p);
    descent_ = make_sgd(all, {.momentum = 0, .weight_decay = 0});
    strategy_ = std::make_unique<DilocoStrategy>(Replica{all, {buffer_}}, comm, options);
    state_ = std::make_unique<TrainState>(TrainState{0, *descent_});
  }

  void step() {
    comm_.ledger().set_phase(strategy_->phase());
    for (std::size_t i = 0; i < params_.size(); ++i)
      params_[i].value.set_grad(filled(kDilocoSizes[i], weight(i) - target(comm_.rank(), i)));
    descent_->step(0.5);
    ++state_->step;
    strategy_->after_step(*state_);
  }

  DilocoStrategy& strategy() { return *strategy_; }
  TrainState& state() { return *state_; }
  float weight(std::size_t i) const { return params_[i].value.value().data<float>()[kDilocoSizes[i] - 1]; }
  float buffer() const { return buffer_.data<float>()[0]; }
  void set_buffer(float value) { *buffer_.data<float>() = value; }
  std::vector<Param>& params() { return params_; }

  static float target(int rank, std::size_t param) {
    return static_cast<float>(rank + 1) * static_cast<float>(param + 1);
  }

 private:
  static Tensor filled(std::int64_t size, float value) {
    return Tensor::from(std::vector<float>(static_cast<std::size_t>(size), value), {size});
  }

  Comm& comm_;
  std::vector<Param> params_;
  Tensor buffer_;
  std::unique_ptr<Optimizer> descent_;
  std::unique_ptr<DilocoStrategy> strategy_;
  std::unique_ptr<TrainState> state_;
};

TEST(Diloco, TakesOuterStepsThatAreComputedByHand) {
  run_thread_ranks(2, {}, [](Comm& comm) {
    InnerSteps steps(comm, {.inner_steps = 1, .outer_lr = 0.5, .outer_momentum = 0.5});
    // θ = 0, targets 1 and 2: the ranks come to 1/2 and 1, so Δ = v = −3/4, and θ = 1/2 (3/4 + 3/8).
    steps.step();
    EXPECT_FLOAT_EQ(steps.weight(0), 0.5625f);
    EXPECT_TRUE(steps.strategy().replicas_agree());
    // They come to 0.78125 and 1.28125: Δ = −0.46875, v = −0.375 + Δ, and θ grows by 1/2 (0.46875 + 0.421875).
    steps.step();
    EXPECT_FLOAT_EQ(steps.weight(0), 1.0078125f);
  });
}

TEST(Diloco, KeepsBuffersOutOfTheMomentum) {
  run_thread_ranks(2, {}, [](Comm& comm) {
    InnerSteps steps(comm, {.inner_steps = 2});
    for (const float round : {1.0f, 2.0f}) {
      steps.step();
      steps.set_buffer(round * static_cast<float>(comm.rank()));
      steps.step();
      EXPECT_EQ(steps.buffer(), round / 2);
    }
  });
}

TEST(Diloco, ShowsTheModelThatAllRanksShareAndGoesOnWithItsOwn) {
  run_thread_ranks(2, {}, [](Comm& comm) {
    InnerSteps steps(comm, {.inner_steps = 2, .outer_lr = 1, .outer_momentum = 0});
    steps.step();
    steps.step();
    const float shared = steps.weight(0);
    EXPECT_FLOAT_EQ(shared, 1.5f * 3 / 4);
    steps.step();
    const float own = steps.weight(0);
    EXPECT_FALSE(steps.strategy().replicas_agree());
    steps.set_buffer(static_cast<float>(comm.rank()));
    const std::int64_t outer = comm.ledger().total_of_phase(DilocoStrategy::kOuter).calls;
    steps.strategy().begin_evaluation(steps.state());
    EXPECT_EQ(steps.weight(0), shared);
    EXPECT_EQ(steps.buffer(), 0.5f);
    steps.strategy().end_evaluation(steps.state());
    EXPECT_EQ(steps.weight(0), own);
    EXPECT_EQ(steps.buffer(), static_cast<float>(comm.rank()));
    EXPECT_EQ(comm.ledger().total_of_phase(DilocoStrategy::kOuter).calls, outer);
    // The outer step of the half round: with η_o = 1 and μ = 0 the mean of the replicas.
    steps.strategy().finish(steps.state());
    EXPECT_FLOAT_EQ(steps.weight(0), shared + (1.5f - shared) / 2);
  });
}

/// The algorithm once more, in double and all ranks at once: one number stands for a parameter.
std::vector<double> reference(int ranks, const DilocoOptions& o, std::int64_t steps,
                              const std::vector<std::size_t>& fragment_of, bool finished, int shown) {
  const auto n = std::size(kDilocoSizes);
  const std::size_t fragments = static_cast<std::size_t>(o.fragments);
  std::vector<double> global(n, 0), velocity(n, 0), mean_sent(n, 0);
  std::vector<std::vector<double>> local(static_cast<std::size_t>(ranks), global);
  std::vector<bool> trained(fragments, false);  // after its last round
  bool in_flight = false;
  const auto send = [&](std::size_t f) {
    for (std::size_t i = 0; i < n; ++i)
      if (fragment_of[i] == f) {
        mean_sent[i] = 0;
        for (const auto& mine : local) mean_sent[i] += (global[i] - mine[i]) / ranks;
      }
    in_flight = true;
  };
  const auto outer = [&](std::size_t f, double a) {
    for (std::size_t i = 0; i < n; ++i)
      if (fragment_of[i] == f) {
        velocity[i] = o.outer_momentum * velocity[i] + mean_sent[i];
        global[i] -= o.outer_lr * (mean_sent[i] + o.outer_momentum * velocity[i]);
        for (auto& mine : local) mine[i] = (1 - a) * global[i] + a * mine[i];
      }
    in_flight = false;
  };
  std::int64_t counter = 0;
  std::size_t round = 0;
  for (std::int64_t t = 0; t < steps; ++t) {
    for (std::size_t r = 0; r < local.size(); ++r)
      for (std::size_t i = 0; i < n; ++i)
        local[r][i] -= 0.5 * (local[r][i] - InnerSteps::target(static_cast<int>(r), i));
    trained.assign(fragments, true);
    ++counter;
    if (counter == o.round_steps() - o.overlap_steps) send(round % fragments);
    if (counter < o.round_steps()) continue;
    outer(round % fragments, o.mixing);
    trained[round % fragments] = false;
    counter = 0;
    ++round;
  }
  if (!finished) return local[static_cast<std::size_t>(shown)];
  const std::size_t flying = in_flight ? round % fragments : fragments;
  if (in_flight) outer(flying, 0);
  for (std::size_t f = 0; f < fragments; ++f)
    if (f != flying && trained[f]) send(f), outer(f, 0);
  return global;
}

TEST(Diloco, StreamsAsTheAlgorithmSays) {
  const DilocoOptions variants[] = {
      {.inner_steps = 3, .outer_lr = 0.7, .outer_momentum = 0.9},
      {.inner_steps = 3, .outer_lr = 0.7, .outer_momentum = 0.9, .overlap_steps = 2},
      {.inner_steps = 3, .outer_lr = 0.7, .outer_momentum = 0.9, .overlap_steps = 1, .mixing = 0.5},
      {.inner_steps = 4, .outer_lr = 0.7, .outer_momentum = 0.9, .fragments = 4},
      {.inner_steps = 6, .outer_lr = 0.6, .outer_momentum = 0.8, .fragments = 2, .overlap_steps = 1, .mixing = 0.25},
      {.inner_steps = 9, .outer_lr = 0.6, .outer_momentum = 0.8, .fragments = 3, .overlap_steps = 2, .mixing = 1},
  };
  for (const DilocoOptions& options : variants)
    for (const std::int64_t length : {1, 5, 11, 12}) {
      SCOPED_TRACE(fmt::format("H {}, F {}, overlap {}, {} steps", options.inner_steps, options.fragments,
                               options.overlap_steps, length));
      const std::vector<std::size_t> fragments =
          assign_fragments({std::begin(kDilocoSizes), std::end(kDilocoSizes)}, options.fragments);
      run_thread_ranks(3, {}, [&](Comm& comm) {
        InnerSteps steps(comm, options);
        while (steps.state().step < length) {
          steps.step();
          const auto expected = reference(3, options, steps.state().step, fragments, false, comm.rank());
          for (std::size_t i = 0; i < expected.size(); ++i)
            ASSERT_NEAR(steps.weight(i), expected[i], 1e-4) << "step " << steps.state().step << ", parameter " << i;
        }
        steps.strategy().finish(steps.state());
        const auto expected = reference(3, options, length, fragments, true, 0);
        for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(steps.weight(i), expected[i], 1e-4) << i;
      });
    }
}

TEST(Diloco, GoesOnWithAFragmentInFlight) {
  const DilocoOptions options{.inner_steps = 6, .fragments = 2, .overlap_steps = 2, .mixing = 0.5};
  run_thread_ranks(2, {}, [&](Comm& comm) {
    InnerSteps whole(comm, options);
    for (int i = 0; i < 5; ++i) whole.step();  // fragment 1 left after step 4
    StateDict saved;
    whole.strategy().save(saved);
    InnerSteps resumed(comm, options);
    for (std::size_t i = 0; i < whole.params().size(); ++i)
      resumed.params()[i].value.value().copy_from(whole.params()[i].value.value());
    resumed.state().step = 5;
    resumed.strategy().load(saved, resumed.state());
    for (int i = 0; i < 5; ++i) {
      whole.step();
      resumed.step();
      for (std::size_t p = 0; p < whole.params().size(); ++p) EXPECT_EQ(resumed.weight(p), whole.weight(p)) << i;
    }
  });
}

TEST(Diloco, SendsEveryParameterOnceInHSteps) {
  run_thread_ranks(2, {}, [](Comm& comm) {
    InnerSteps steps(comm, {.inner_steps = 8, .fragments = 4, .overlap_steps = 1});
    for (int i = 0; i < 16; ++i) steps.step();
    const LedgerEntry sent = comm.ledger().total_of_phase(DilocoStrategy::kOuter);
    EXPECT_EQ(sent.calls, 8 + 2);  // the buffers go with the last fragment
    EXPECT_EQ(sent.payload_bytes, 2 * 4 * (6 + 2 + 3 + 5 + 1));
    EXPECT_EQ(comm.ledger().total_of_phase(DilocoStrategy::kSteps).calls, 0);
  });
}

TEST(Diloco, ItsPlanHidesWhatTravelsWhileStepsAreComputed) {
  TrainConfig config =
      resolve_config_text({{"method", "diloco"}}, "[diloco]\ninner_steps = 10\noverlap_steps = 3\n", "");
  config.model = "mlp", config.width = 1.0 / 32, config.dataset = "synthetic";
  config.epochs = 0, config.steps = 95, config.eval_every = 0;
  const RehearsedRun run = rehearse(config, data_shape(config), 2, {});
  const LinkModel links{{0, 1e3}, {0, 1e6}};
  const auto at = [&](double step_seconds) { return replay(run, links, step_seconds).at(DilocoStrategy::kOuter); };
  double once = 0;
  const auto model = make_model({.name = "mlp", .width = 1.0 / 32});
  for (const Param* p : inventory_of(*model).params) once += 4.0 * static_cast<double>(p->numel()) / 1e6;
  EXPECT_NEAR(at(0).communication, 10 * once, 1e-9);
  EXPECT_EQ(at(0).hidden, 0);
  EXPECT_NEAR(at(1e6).exposed(), once, 1e-6) << "only the outer step at the end of the run";
  EXPECT_NEAR(at(once / 30).hidden, 9 * 3 * once / 30, 1e-3 * once) << "three steps of each round";
}

TEST(Diloco, RefusesFragmentsThatDoNotFit) {
  EXPECT_THROW((DilocoOptions{.inner_steps = 10, .fragments = 4}.validate(9)), Error);
  EXPECT_THROW((DilocoOptions{.inner_steps = 8, .fragments = 4, .overlap_steps = 2}.validate(9)), Error);
  EXPECT_THROW((DilocoOptions{.inner_steps = 8, .fragments = 4}.validate(3)), Error);
  EXPECT_NO_THROW((DilocoOptions{.inner_steps = 8, .fragments = 4, .overlap_steps = 1}.validate(4)));
}

TEST(Diloco, FragmentsAreOfLikeSize) {
  EXPECT_EQ(assign_fragments({6, 2, 3, 5}, 2), (std::vector<std::size_t>{0, 1, 1, 1}));
  EXPECT_EQ(assign_fragments({4, 4, 4, 4, 4}, 2), (std::vector<std::size_t>{0, 1, 0, 1, 0}));
}

}  // namespace
}  // namespace ab
