// SPDX-License-Identifier: MIT
//
// DASO: its schedule, its steps computed by hand, and the plan of a run whose loss decides; what it has in common with
// other methods is in strategy_laws_test.cpp.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "engine/sync/daso.h"
#include "tests/program_test.h"

namespace ab {
namespace {

// --- The schedule.

constexpr DasoOptions kReleased{.blocking_epochs = 4, .cooldown_epochs = 4};

LrSchedule run_of(std::int64_t epochs, std::int64_t steps_per_epoch) {
  return {.total_steps = epochs * steps_per_epoch, .steps_per_epoch = steps_per_epoch};
}

/// B of every epoch, 0 in blocking ones.
std::vector<std::int64_t> skips_of(const DasoCalendar& calendar, const std::vector<DasoPace>& paces) {
  std::vector<std::int64_t> skips;
  for (std::int64_t e = 0; e < calendar.epochs(); ++e)
    skips.push_back(calendar.blocking(e) ? 0 : paces[static_cast<std::size_t>(e)].skips);
  return skips;
}

/// The paces of all epochs (those of blocking ones do not count) when the loss falls in no epoch.
std::vector<DasoPace> paces_by_clock(const DasoOptions& options, const DasoCalendar& calendar) {
  DasoOptions by_clock = options;
  by_clock.stability = 1;
  DasoController controller(by_clock);
  std::vector<DasoPace> paces;
  for (std::int64_t epoch = 0; epoch < calendar.epochs(); ++epoch) {
    paces.push_back(controller.pace());
    if (calendar.decides_after(epoch)) controller.epoch_end(1);
  }
  return paces;
}

TEST(DasoSchedule, IsTheReleasesWhenTheLossNeverFalls) {
  const DasoCalendar calendar(kReleased, run_of(90, 10));
  std::vector<std::int64_t> expected(4, 0);
  for (const std::int64_t skips : {4, 2, 1}) expected.insert(expected.end(), 3, skips);
  while (expected.size() < 86)
    for (const std::int64_t skips : {8, 4, 2, 1}) expected.insert(expected.end(), 3, skips);
  expected.resize(86);
  expected.resize(90, 0);
  const std::vector<DasoPace> paces = paces_by_clock(kReleased, calendar);
  EXPECT_EQ(skips_of(calendar, paces), expected);
  EXPECT_EQ(paces[13], (DasoPace{8, 2}));
  EXPECT_EQ(paces[16], (DasoPace{4, 1}));
}

/// Bytes between nodes as a share of a blocking exchange after every step; `blocking`: bytes of one of DASO's.
double share(const DasoCalendar& calendar, const std::vector<DasoPace>& paces, double blocking) {
  double sum = 0;
  for (std::int64_t e = 0; e < calendar.epochs(); ++e) {
    const auto steps = static_cast<double>(calendar.last_of(e) + 1);
    sum += calendar.blocking(e)
               ? blocking
               : (1 + static_cast<double>(calendar.sends(e, paces[static_cast<std::size_t>(e)]))) / steps;
  }
  return sum / static_cast<double>(calendar.epochs());
}

TEST(DasoSchedule, SavesWhatItsArithmeticSays) {
  const DasoCalendar calendar(kReleased, run_of(90, 5004));
  const std::vector<DasoPace> never_falls = paces_by_clock(kReleased, calendar);
  EXPECT_NEAR(share(calendar, never_falls, 0.5), 0.479, 1e-3);  // with 16 bits in blocking exchanges
  EXPECT_NEAR(share(calendar, never_falls, 1), 0.524, 1e-3);
  const std::vector<DasoPace> always_falls(90, DasoPace{4, 1});
  EXPECT_NEAR(share(calendar, always_falls, 0.5), 0.272, 1e-3);
}

TEST(DasoSchedule, LooksAtTheBestLoss) {
  DasoController controller({.stability = 0.1, .patience = 1});
  const std::pair<double, std::int64_t> epochs[] = {{2.0, 4},  {1.85, 4}, {1.75, 4}, {1.6, 4}, {1.58, 2},
                                                    {1.58, 2}, {1.58, 1}, {1.0, 1},  {1.0, 1}, {1.0, 8}};
  for (const auto& [loss, skips] : epochs) {
    controller.epoch_end(loss);
    EXPECT_EQ(controller.pace().skips, skips) << loss;
  }
}

TEST(DasoSchedule, ASmallTopStillWaitsAStep) {
  EXPECT_EQ(next_pace({1, 1}, {.max_skips = 2}), (DasoPace{2, 1}));
  EXPECT_EQ(next_pace({1, 1}, {.max_skips = 1}), (DasoPace{1, 1}));
  EXPECT_EQ(next_pace({8, 8}, {}), (DasoPace{4, 4}));
}

/// Sends of a run for every way in which losses can fall or not.
std::set<std::int64_t> all_sends(const DasoOptions& options, const DasoCalendar& calendar) {
  std::vector<std::int64_t> decided;
  for (std::int64_t e = 0; e < calendar.epochs(); ++e)
    if (calendar.decides_after(e)) decided.push_back(e);
  std::set<std::int64_t> sums;
  for (std::uint32_t falls = 0; falls < 1u << decided.size(); ++falls) {
    DasoController controller(options);
    std::int64_t sum = 0, asked = 0;
    double loss = 1;
    for (std::int64_t e = 0; e < calendar.epochs(); ++e) {
      if (!calendar.blocking(e)) sum += calendar.sends(e, controller.pace());
      if (!calendar.decides_after(e)) continue;
      if (falls >> asked++ & 1) loss /= 2;
      controller.epoch_end(loss);
    }
    sums.insert(sum);
  }
  return sums;
}

TEST(DasoSchedule, BoundsAreThoseOfAllRunsThereCanBe) {
  for (const std::int64_t patience : {0, 1, 2})
    for (const std::int64_t warmup : {0, 1, 3}) {
      const DasoOptions options{.blocking_epochs = warmup, .max_skips = 6, .patience = patience};
      const DasoCalendar calendar(options, {.total_steps = 11 * 13 + 5, .steps_per_epoch = 13});
      const std::set<std::int64_t> sums = all_sends(options, calendar);
      const auto sends = [&](bool most) {
        std::int64_t sum = 0;
        const std::vector<DasoPace> paces = extreme_paces(options, calendar, most);
        for (std::int64_t e = 0; e < calendar.epochs(); ++e)
          if (!calendar.blocking(e)) sum += calendar.sends(e, paces[static_cast<std::size_t>(e)]);
        return sum;
      };
      EXPECT_EQ(sends(false), *sums.begin()) << patience << ", " << warmup;
      EXPECT_EQ(sends(true), *sums.rbegin()) << patience << ", " << warmup;
      EXPECT_LT(sends(false), sends(true));
    }
}

// --- Steps.

constexpr std::int64_t kDasoElements = 6;

/// Each rank descends towards a target of its own; a step at rate 1/2 halves the distance to the mean of its node.
class DasoSteps {
 public:
  DasoSteps(Comm& comm, const DasoOptions& options, std::int64_t steps_per_epoch, std::int64_t epochs = 10)
      : comm_(comm),
        weight_{"weight", Var(Tensor::zeros({kDasoElements}), true)},
        buffer_(Tensor::zeros({1})),
        descent_(make_sgd({&weight_}, {.momentum = 0, .weight_decay = 0})),
        strategy_({{&weight_}, {buffer_}}, comm, options, run_of(epochs, steps_per_epoch)),
        state_{0, *descent_} {}

  void step() {
    comm_.ledger().set_phase(strategy_.phase());
    const float slope = weight() - static_cast<float>(comm_.rank() + 1);
    weight_.value.set_grad(Tensor::from(std::vector<float>(kDasoElements, slope), {kDasoElements}));
    weight_.value.call_grad_ready_hook();
    strategy_.finish_grads(state_);
    descent_->step(0.5);
    ++state_.step;
    strategy_.after_step(state_);
  }

  DasoStrategy& strategy() { return strategy_; }
  TrainState& state() { return state_; }
  float weight() const { return weight_.value.value().data<float>()[kDasoElements - 1]; }
  float buffer() const { return *buffer_.data<float>(); }
  void set_buffer(float value) { *buffer_.data<float>() = value; }
  LedgerEntry sent(const char* phase) { return comm_.ledger().total_of_phase(phase); }

 private:
  Comm& comm_;
  Param weight_;
  Tensor buffer_;
  std::unique_ptr<Optimizer> descent_;
  DasoStrategy strategy_;
  TrainState state_;
};

constexpr DasoOptions kCyclingOnly{.blocking_epochs = 0, .cooldown_epochs = 0, .start_skips = 2};

TEST(Daso, MergesWhatWasSentAStepAgo) {
  run_thread_ranks(2, {}, [](Comm& comm) {
    DasoSteps steps(comm, kCyclingOnly, 100);
    const bool first = comm.rank() == 0;
    steps.step();  // to 1/2 and 1, which is sent: mean 3/4
    EXPECT_FLOAT_EQ(steps.weight(), first ? 0.5f : 1.0f);
    EXPECT_FALSE(steps.strategy().replicas_agree());
    steps.step();  // to 3/4 and 3/2; merged with weights 2S = 2 and m = 2
    EXPECT_FLOAT_EQ(steps.weight(), first ? (2 * 0.75f + 2 * 0.75f) / 4 : (2 * 1.5f + 2 * 0.75f) / 4);
    EXPECT_EQ(steps.sent(DasoStrategy::kCycling).calls, 0);
  });
}

TEST(Daso, BlockingEpochsAverageParametersAndBuffersAfterEveryStep) {
  run_thread_ranks(2, {}, [](Comm& comm) {
    DasoSteps steps(comm, {}, 3);
    for (int step = 1; step <= 3; ++step) {
      EXPECT_EQ(steps.strategy().phase(), DasoStrategy::kBlocking);
      steps.set_buffer(static_cast<float>(comm.rank()));
      steps.step();
      EXPECT_FLOAT_EQ(steps.weight(), 1.5f * static_cast<float>((1 << step) - 1) / static_cast<float>(1 << step));
      EXPECT_EQ(steps.buffer(), 0.5f);
      EXPECT_TRUE(steps.strategy().replicas_agree());
    }
    EXPECT_EQ(steps.strategy().phase(), DasoStrategy::kCycling);
    EXPECT_TRUE(steps.strategy().follows_epochs());
  });
}

// Three nodes of two ranks: who sends changes from exchange to exchange, and a node hears of a send when it is merged.
TEST(Daso, OneRankOfEveryNodeSendsInTurn) {
  run_thread_ranks(6, {.ranks_per_node = 2}, [](Comm& comm) {
    DasoOptions options = kCyclingOnly;
    options.node_size = 2;
    DasoSteps steps(comm, options, 8);
    const std::int64_t parameters = 4 * kDasoElements, all = parameters + 4;
    const bool odd = comm.rank() % 2 == 1;
    steps.step();  // the even ranks send
    EXPECT_EQ(steps.sent(DasoStrategy::kMerge).calls, odd ? 0 : 1);
    EXPECT_EQ(steps.sent(DasoStrategy::kMerge).intra_node_wire_bytes, 0) << "no broadcast before the merge";
    steps.step();
    EXPECT_EQ(steps.sent(DasoStrategy::kMerge).payload_bytes, (odd ? 1 : 2) * parameters);
    steps.step();  // the odd ones
    EXPECT_EQ(steps.sent(DasoStrategy::kMerge).payload_bytes, 2 * parameters);
    for (int i = 3; i < 8; ++i) steps.step();
    // Sends after steps 1, 3 and 5 (that of 7 would be merged at the end of the epoch), and the end of the epoch.
    EXPECT_EQ(steps.sent(DasoStrategy::kMerge).payload_bytes, (3 + (odd ? 1 : 2)) * parameters);
    EXPECT_EQ(steps.sent(DasoStrategy::kAverage).payload_bytes, (odd ? 2 : 1) * all);
    EXPECT_TRUE(steps.strategy().replicas_agree());
    EXPECT_EQ(steps.sent(DasoStrategy::kCycling).inter_node_wire_bytes, 0);
    steps.step();  // a new epoch begins with the even ranks again
    EXPECT_EQ(steps.sent(DasoStrategy::kMerge).payload_bytes, (odd ? 4 : 6) * parameters);
  });
}

TEST(Daso, ANodeCountsByItsRanks) {
  run_thread_ranks(3, {.ranks_per_node = 2}, [](Comm& comm) {
    DasoSteps steps(comm, {.node_size = 2}, 3);
    steps.step();  // the nodes come to 3/4 and 3/2
    EXPECT_FLOAT_EQ(steps.weight(), (2 * 0.75f + 1.5f) / 3);
  });
}

TEST(Daso, ShowsTheMeanAndGoesOnWithItsOwn) {
  run_thread_ranks(2, {}, [](Comm& comm) {
    DasoSteps steps(comm, kCyclingOnly, 100), undisturbed(comm, kCyclingOnly, 100);
    for (int i = 0; i < 6; ++i) {
      steps.step();
      undisturbed.step();
      const float own = steps.weight();
      steps.strategy().begin_evaluation(steps.state());
      const Tensor shown = Tensor::scalar(steps.weight());
      comm.all_reduce(shown, ReduceOp::mean);
      EXPECT_FLOAT_EQ(steps.weight(), static_cast<float>(shown.item()));
      steps.strategy().end_evaluation(steps.state());
      EXPECT_EQ(steps.weight(), own);
      EXPECT_EQ(steps.weight(), undisturbed.weight());
    }
  });
}

// --- The plan of a run whose loss decides.

class DasoPlan : public test::ProgramTest {
 protected:
  nlohmann::json plan(const std::string& more) {
    const test::Outcome outcome =
        run(fmt::format("plan --config {} --out {} {}", path("run/config.toml"), path("plan.json"), more));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    printed_ = outcome.out;
    return nlohmann::json::parse(read_file(path("plan.json"), ErrorKind::data));
  }
  std::string printed_;
};

TEST_F(DasoPlan, HasBoundsAndFollowsTheDecisionsOfARun) {
  const test::Outcome trained = run(fmt::format(
      "train --model mlp --dataset cifar10 --data-dir {} --train-samples 40 --val-samples 16 --batch-size 4 "
      "--steps 28 --lr 0.01 --ranks 2 --method daso --daso.blocking-epochs 0 --daso.patience 0 "
      "--daso.stability 0.9 --out {}",
      small_cifar(), path("run")));
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const auto summary = nlohmann::json::parse(read_file(path("run/summary.json"), ErrorKind::data));
  const double sent = summary.at("wire_bytes_per_rank_total");

  const nlohmann::json bounds = plan("");
  EXPECT_LT(bounds.at("plan").at("least").at("wire_bytes_per_rank_total"), sent);
  EXPECT_GT(bounds.at("wire_bytes_per_rank_total"), sent);
  EXPECT_TRUE(test::contains(printed_, "Training decides"));

  const nlohmann::json followed = plan("--decisions-from " + path("run"));
  EXPECT_FALSE(followed.at("plan").contains("least"));
  EXPECT_EQ(followed.at("wire_bytes_per_rank_by_phase"), summary.at("wire_bytes_per_rank_by_phase"));
  expect_failure(fmt::format("plan --config {} --steps 100 --decisions-from {}", path("run/config.toml"), path("run")),
                 2, "decided nothing after epoch");
  expect_failure("plan --method daso --daso.start-wait 5", 2, "start-wait");
  expect_failure("plan --method local --decisions-from " + path("run"), 2, "local does not");
}

}  // namespace
}  // namespace ab
