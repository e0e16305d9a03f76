// SPDX-License-Identifier: MIT
//
// Local training against what can be computed by hand; what it has in common with other methods is in
// strategy_laws_test.cpp.
#include <gtest/gtest.h>

#include "engine/sync/local.h"

namespace ab {
namespace {

constexpr std::int64_t kElements = 6;

/// Each rank descends towards a target of its own, and every step at rate 1/2 halves the distance.
class LocalSteps {
 public:
  LocalSteps(Comm& comm, std::int64_t average_every)
      : comm_(comm), weight_{"weight", Var(filled(static_cast<float>(comm.rank())), true)},
        buffer_(filled(static_cast<float>(10 * comm.rank()))),
        descent_(make_sgd({&weight_}, {.momentum = 0, .weight_decay = 0})),
        strategy_({{&weight_}, {buffer_}}, comm, {.average_every = average_every}), state_{0, *descent_} {}

  void step() {
    comm_.ledger().set_phase(strategy_.phase());
    Tensor gradient = filled(weight() - target());
    weight_.value.set_grad(gradient);
    strategy_.finish_grads(state_);
    descent_->step(0.5);
    ++state_.step;
    strategy_.after_step(state_);
  }

  LocalStrategy& strategy() { return strategy_; }
  TrainState& state() { return state_; }
  float weight() const { return weight_.value.value().data<float>()[kElements - 1]; }
  float buffer() const { return buffer_.data<float>()[0]; }
  void set_buffer(float value) { std::fill_n(buffer_.data<float>(), kElements, value); }
  float target() const { return static_cast<float>(comm_.rank() + 1); }

 private:
  static Tensor filled(float value) {
    const Tensor tensor(Shape{kElements});
    std::fill_n(tensor.data<float>(), kElements, value);
    return tensor;
  }

  Comm& comm_;
  Param weight_;
  Tensor buffer_;
  std::unique_ptr<Optimizer> descent_;
  LocalStrategy strategy_;
  TrainState state_;
};

float mean_target(const Comm& comm) { return static_cast<float>(comm.size() + 1) / 2; }

class OnRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Counts, OnRanks, ::testing::Values(1, 2, 4, 5));

TEST_P(OnRanks, LocalTrainingAveragesAfterEveryRound) {
  run_thread_ranks(GetParam(), {}, [](Comm& comm) {
    LocalSteps steps(comm, 3);
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
    EXPECT_FLOAT_EQ(steps.weight(), mean_target(comm) * 7 / 8);
    EXPECT_FLOAT_EQ(steps.buffer(), static_cast<float>(comm.size() - 1) / 2);
    const LedgerEntry sent = comm.ledger().total_of_phase(LocalStrategy::kAverage);
    EXPECT_EQ(sent.calls, 1);
    EXPECT_EQ(sent.payload_bytes, 4 * 2 * kElements);
    EXPECT_EQ(comm.ledger().total_of_phase(LocalStrategy::kSteps).calls, 0);
  });
}

TEST_P(OnRanks, LocalTrainingShowsTheAverageAndGoesOnWithItsReplica) {
  run_thread_ranks(GetParam(), {}, [](Comm& comm) {
    LocalSteps steps(comm, 3);
    steps.step();
    steps.strategy().begin_evaluation(steps.state());
    EXPECT_FLOAT_EQ(steps.weight(), mean_target(comm) / 2);
    steps.strategy().end_evaluation(steps.state());
    EXPECT_FLOAT_EQ(steps.weight(), steps.target() / 2);
    steps.strategy().finish(steps.state());
    EXPECT_FLOAT_EQ(steps.weight(), mean_target(comm) / 2);
    EXPECT_TRUE(steps.strategy().replicas_agree());
  });
}

TEST(LocalTraining, NeedsARoundOfAtLeastOneStep) { EXPECT_THROW(LocalSteps(*make_self_comm(), 0), Error); }

}  // namespace
}  // namespace ab
