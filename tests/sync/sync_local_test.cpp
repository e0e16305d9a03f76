// SPDX-License-Identifier: MIT
//
// Local training against what can be computed by hand; what it has in common with other methods is in
// strategy_laws_test.cpp.
#include <gtest/gtest.h>

#include "engine/kernels/elementwise.h"
#include "engine/sync/local.h"

namespace ab {
namespace {

constexpr std::int64_t kLocalElements = 6;

/// Each rank descends towards a target of its own, and every step at rate 1/2 halves the distance.
class LocalSteps {
 public:
  LocalSteps(Comm& comm, const LocalOptions& options, std::int64_t total_steps = 1000)
      : comm_(comm),
        weight_{"weight", Var(filled(static_cast<float>(comm.rank())), true)},
        buffer_(filled(static_cast<float>(10 * comm.rank()))),
        descent_(make_sgd({&weight_}, {.momentum = 0, .weight_decay = 0})),
        strategy_({{&weight_}, {buffer_}}, comm, options, {.total_steps = total_steps}),
        state_{0, *descent_} {
    strategy_.start(state_);
  }

  void step() {
    comm_.ledger().set_phase(strategy_.phase());
    backward(record("descent", Tensor::scalar(0), {weight_.value},
                    [this](const Tensor&) { return Gradients{filled(weight() - target())}; }));
    strategy_.finish_grads(state_);
    descent_->step(0.5);
    descent_->clear_grads();
    ++state_.step;
    strategy_.after_step(state_);
  }

  LocalStrategy& strategy() { return strategy_; }
  TrainState& state() { return state_; }
  float weight() const { return weight_.value.value().data<float>()[kLocalElements - 1]; }
  float buffer() const { return buffer_.data<float>()[0]; }
  void set_buffer(float value) { std::fill_n(buffer_.data<float>(), kLocalElements, value); }
  float target() const { return static_cast<float>(comm_.rank() + 1); }

 private:
  static Tensor filled(float value) {
    const Tensor tensor(Shape{kLocalElements});
    std::fill_n(tensor.data<float>(), kLocalElements, value);
    return tensor;
  }

  Comm& comm_;
  Param weight_;
  Tensor buffer_;
  std::unique_ptr<Optimizer> descent_;
  LocalStrategy strategy_;
  TrainState state_;
};

float mean_local_target(const Comm& comm) { return static_cast<float>(comm.size() + 1) / 2; }

class LocalOnRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Counts, LocalOnRanks, testing::Values(1, 2, 4, 5));

TEST_P(LocalOnRanks, LocalTrainingAveragesAfterEveryRound) {
  run_thread_ranks(GetParam(), {}, [](Comm& comm) {
    LocalSteps steps(comm, {.average_every = 3});
    EXPECT_EQ(steps.weight(), 0) << "that of rank 0";
    EXPECT_EQ(steps.buffer(), 0);
    EXPECT_TRUE(steps.strategy().replicas_agree());
    steps.set_buffer(static_cast<float>(comm.rank()));
    steps.step();
    steps.step();
    EXPECT_FALSE(steps.strategy().replicas_agree());
    EXPECT_FLOAT_EQ(steps.weight(), steps.target() * 3 / 4);
    EXPECT_EQ(comm.ledger().total_of_phase(LocalStrategy::kAverage).calls, 0);
    steps.step();
    EXPECT_TRUE(steps.strategy().replicas_agree());
    EXPECT_FLOAT_EQ(steps.weight(), mean_local_target(comm) * 7 / 8);
    EXPECT_FLOAT_EQ(steps.buffer(), static_cast<float>(comm.size() - 1) / 2);
    const LedgerEntry sent = comm.ledger().total_of_phase(LocalStrategy::kAverage);
    EXPECT_EQ(sent.calls, 1);
    EXPECT_EQ(sent.payload_bytes, 4 * 2 * kLocalElements);
    EXPECT_EQ(comm.ledger().total_of_phase(LocalStrategy::kSteps).calls, 0);
  });
}

TEST_P(LocalOnRanks, LocalTrainingShowsTheAverageAndGoesOnWithItsReplica) {
  run_thread_ranks(GetParam(), {}, [](Comm& comm) {
    LocalSteps steps(comm, {.average_every = 3});
    steps.step();
    steps.strategy().begin_evaluation(steps.state());
    EXPECT_FLOAT_EQ(steps.weight(), mean_local_target(comm) / 2);
    steps.strategy().end_evaluation(steps.state());
    EXPECT_FLOAT_EQ(steps.weight(), steps.target() / 2);
    steps.strategy().finish(steps.state());
    EXPECT_FLOAT_EQ(steps.weight(), mean_local_target(comm) / 2);
    EXPECT_TRUE(steps.strategy().replicas_agree());
  });
}

TEST(LocalTraining, NeedsARoundOfAtLeastOneStep) {
  EXPECT_THROW(LocalSteps(*make_self_comm(), {.average_every = 0}), Error);
}

TEST_P(LocalOnRanks, LocalTrainingEndsItsLastRoundWithTheRun) {
  run_thread_ranks(GetParam(), {}, [](Comm& comm) {
    LocalSteps steps(comm, {.average_every = 3}, 5);
    for (int i = 0; i < 5; ++i) steps.step();
    EXPECT_TRUE(steps.strategy().replicas_agree());
    EXPECT_FLOAT_EQ(steps.weight(), mean_local_target(comm) * 31 / 32);
    steps.strategy().finish(steps.state());
    EXPECT_EQ(comm.ledger().total_of_phase(LocalStrategy::kAverage).calls, 2);
  });
}

// Two nodes, of three ranks and of two: inside them ranks stay equal, and the average counts ranks and not nodes.
TEST(LocalTraining, AveragesGradientsInANodeAndParametersAcross) {
  run_thread_ranks(5, {.ranks_per_node = 3}, [](Comm& comm) {
    LocalSteps steps(comm, {.average_every = 2, .node_size = 3});
    const bool first = comm.rank() < 3;
    steps.step();
    EXPECT_FLOAT_EQ(steps.weight(), (first ? 2.0f : 4.5f) / 2);
    EXPECT_FALSE(steps.strategy().replicas_agree());
    const LedgerEntry sent = comm.ledger().total_of_phase(LocalStrategy::kSteps);
    EXPECT_EQ(sent.payload_bytes, 4 * kLocalElements);
    EXPECT_EQ(sent.inter_node_wire_bytes, 0);
    steps.step();
    EXPECT_FLOAT_EQ(steps.weight(), (3 * 2.0f + 2 * 4.5f) / 5 * 3 / 4);
    EXPECT_GT(comm.ledger().total_of_phase(LocalStrategy::kAverage).inter_node_wire_bytes, 0);
  });
}

TEST(ParameterMean, In16BitsLosesNoSmallChangeOfLargeParameters) {
  run_thread_ranks(2, {}, [](Comm& comm) {
    const Tensor weight = Tensor::from(std::vector<float>(kLocalElements, 1000), {kLocalElements});
    ParameterMean mean({weight}, DType::bfloat16);
    for (const double expected : {1000.1875, 1000.375}) {
      add_in_place(weight, Tensor::from(std::vector<float>(kLocalElements, comm.rank() == 0 ? 0.125f : 0.25f),
                                        {kLocalElements}));
      const Tensor common = mean.over(comm);
      weight.copy_from(common);
      mean.agree();
      EXPECT_EQ(weight.to_doubles()[0], expected);
    }
    EXPECT_EQ(comm.ledger().total().payload_bytes, 2 * 2 * kLocalElements);
  });
}

// --- The length of a round.

LrSchedule constant_rate(double rate) { return {.peak = rate, .total_steps = 1'000'000'000}; }

TEST(RoundLength, IsTheQuadraticRuleOfTheLearningRate) {
  const LocalOptions qsr{.average_every = 4, .qsr_alpha = 0.0175};
  const std::pair<double, std::int64_t> lengths[] = {
      {0.008, 4}, {0.004, 19}, {0.002, 76}, {0.001, 306}, {0.0005, 1225}};
  for (const auto& [rate, length] : lengths) EXPECT_EQ(round_length(qsr, constant_rate(rate), 10), length) << rate;
  const LocalOptions cubic{.average_every = 4, .qsr_alpha = 0.0175, .qsr_power = 3};
  EXPECT_EQ(round_length(cubic, constant_rate(0.004), 10), 83);  // 4.375³ = 83.7
}

TEST(RoundLength, IsConstantWithoutARuleAndWhileTheRateWarmsUp) {
  LrSchedule schedule = constant_rate(0.001);
  EXPECT_EQ(round_length({.average_every = 7}, schedule, 10), 7);
  schedule.warmup_steps = 100;
  const LocalOptions qsr{.average_every = 4, .qsr_alpha = 0.0175};
  EXPECT_EQ(round_length(qsr, schedule, 99), 4);
  EXPECT_EQ(round_length(qsr, schedule, 100), 306);
}

TEST(RoundLength, IsOneBeforeThePostLocalStep) {
  const LocalOptions options{.average_every = 5, .every_step_until = 20};
  EXPECT_EQ(round_length(options, constant_rate(0.1), 19), 1);
  EXPECT_EQ(round_length(options, constant_rate(0.1), 20), 5);
}

TEST(RoundLength, EndsWithTheRunHoweverSmallTheRate) {
  const LrSchedule schedule{.kind = LrSchedule::Kind::cosine, .peak = 0.1, .end = 0, .total_steps = 1013};
  const LocalOptions qsr{.average_every = 4, .qsr_alpha = 0.25};
  std::int64_t step = 0;
  while (step < schedule.total_steps) step += round_length(qsr, schedule, step);
  EXPECT_EQ(step, schedule.total_steps);
  EXPECT_EQ(round_length(qsr, {.peak = 0, .total_steps = 1013}, 13), 1000);
  EXPECT_EQ(round_length(qsr, {.peak = 1e-300, .total_steps = 1013}, 13), 1000);
}

// ViT-B's schedule: 300 epochs of 312 updates, peak rate 0.008.
TEST(RoundLength, GivesTheSharesOfTrafficOfALongRun) {
  const LrSchedule schedule{.kind = LrSchedule::Kind::cosine,
                            .peak = 0.008,
                            .start = 1e-6,
                            .end = 1e-6,
                            .warmup_steps = 10'000,
                            .total_steps = 93'600};
  const auto percent = [&](const LocalOptions& options) {
    std::int64_t rounds = 0;
    for (std::int64_t step = 0; step < schedule.total_steps; ++rounds) step += round_length(options, schedule, step);
    return 100.0 * static_cast<double>(rounds) / static_cast<double>(schedule.total_steps);
  };
  EXPECT_NEAR(percent({.average_every = 4}), 25.0, 0.05);
  EXPECT_NEAR(percent({.average_every = 8}), 12.5, 0.05);
  EXPECT_NEAR(percent({.average_every = 4, .qsr_alpha = 0.015}), 12.3, 0.05);
  EXPECT_NEAR(percent({.average_every = 4, .qsr_alpha = 0.0175}), 10.4, 0.05);
  EXPECT_NEAR(percent({.average_every = 8, .qsr_alpha = 0.015}), 7.4, 0.05);
  EXPECT_NEAR(percent({.average_every = 8, .qsr_alpha = 0.0175}), 6.9, 0.05);
}

TEST(LocalTraining, GoesOnInMidRoundWhereItStopped) {
  const LocalOptions options{.average_every = 3, .every_step_until = 2};  // rounds end at 1, 2, 5, 8, 10
  for (std::int64_t stop = 1; stop < 10; ++stop) {
    const auto self = make_self_comm();
    LocalSteps stopped(*self, options, 10), resumed(*self, options, 10);
    for (std::int64_t step = 0; step < stop; ++step) stopped.step();
    StateDict saved;
    stopped.strategy().save(saved);
    resumed.state().step = stop;
    resumed.strategy().load(saved, resumed.state());
    const auto averages = [&] { return self->ledger().total_of_phase(LocalStrategy::kAverage).calls; };
    EXPECT_EQ(resumed.strategy().replicas_agree(), stop <= 2 || stop == 5 || stop == 8) << stop;
    for (std::int64_t step = stop; step < 10; ++step) {
      const std::int64_t before = averages();
      resumed.step();
      const std::int64_t now = step + 1;
      EXPECT_EQ(averages() - before, now <= 2 || now == 5 || now == 8 || now == 10) << stop << ", " << now;
    }
  }
}

}  // namespace
}  // namespace ab
