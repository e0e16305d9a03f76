// SPDX-License-Identifier: MIT
//
// Signals that ask a run to stop.
#include "apps/train/stop_request.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <thread>

#include "engine/core/random.h"
#include "engine/ops/linear.h"

namespace ab {
namespace {

using namespace std::chrono_literals;

void signal_this_process(int signal) { ASSERT_EQ(::kill(::getpid(), signal), 0); }

bool wait_for_request() {
  for (int i = 0; i < 500 && !stop_requested(); ++i) std::this_thread::sleep_for(10ms);
  return stop_requested();
}

Tensor random_matrix(std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  const Philox random{seed, 0};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(random.uniform(i)) - 0.5f;
  return Tensor::from(values, {rows, columns});
}

// Ends the process by a later signal, so each test has a process of its own.
class StopSignalTest : public testing::Test {
 protected:
  StopSignalTest() {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    for (const int signal : kStopSignals) std::signal(signal, SIG_DFL);  // whatever the shell ignores
  }

  static constexpr int kStopSignals[] = {SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGHUP, SIGINT};
};

TEST_F(StopSignalTest, EachOfThemIsHeard) {
  for (const int signal : kStopSignals)
    EXPECT_EXIT(
        {
          listen_for_stop_signals();
          signal_this_process(signal);
          std::_Exit(wait_for_request() ? 75 : 1);
        },
        testing::ExitedWithCode(75), "");
}

TEST_F(StopSignalTest, CopiesAreOneRequestAndALaterOneEndsTheProcess) {
  EXPECT_EXIT(
      {
        listen_for_stop_signals();
        signal_this_process(SIGUSR1);
        signal_this_process(SIGTERM);
        std::this_thread::sleep_for(5500ms);
        signal_this_process(SIGXCPU);
        signal_this_process(SIGHUP);
        std::this_thread::sleep_for(200ms);
        std::fputs("alive", stderr);
        signal_this_process(SIGTERM);
        std::this_thread::sleep_for(5s);
        std::_Exit(0);
      },
      testing::KilledBySignal(SIGTERM), "alive");
}

TEST_F(StopSignalTest, ASecondCtrlCEndsTheProcessAtOnce) {
  EXPECT_EXIT(
      {
        listen_for_stop_signals();
        signal_this_process(SIGINT);
        if (!wait_for_request()) std::_Exit(1);
        signal_this_process(SIGINT);  // what a launcher passes on
        std::this_thread::sleep_for(20ms);
        std::fputs("alive", stderr);
        for (int i = 0; i < 40; ++i) {
          std::this_thread::sleep_for(100ms);
          signal_this_process(SIGINT);
        }
        std::_Exit(0);
      },
      testing::KilledBySignal(SIGINT), "alive");
}

TEST_F(StopSignalTest, CtrlCAndHangupThatAreIgnoredStaySoAndOtherSignalsDoNot) {
  EXPECT_EXIT(
      {
        for (const int signal : {SIGINT, SIGHUP, SIGTERM}) std::signal(signal, SIG_IGN);
        listen_for_stop_signals();
        signal_this_process(SIGINT);
        signal_this_process(SIGHUP);
        std::this_thread::sleep_for(200ms);
        const bool ignored = !stop_requested();
        signal_this_process(SIGTERM);
        std::_Exit(ignored && wait_for_request() ? 75 : 1);
      },
      testing::ExitedWithCode(75), "");
}

TEST_F(StopSignalTest, ARunThatCtrlCStoppedEndsAsByCtrlC) {
  EXPECT_EXIT(
      {
        listen_for_stop_signals();
        signal_this_process(SIGINT);
        if (wait_for_request()) end_if_interrupted();
        std::_Exit(0);
      },
      testing::KilledBySignal(SIGINT), "");
  EXPECT_EXIT(
      {
        listen_for_stop_signals();
        signal_this_process(SIGTERM);
        if (wait_for_request()) end_if_interrupted();
        std::_Exit(75);
      },
      testing::ExitedWithCode(75), "");
}

/// Sends SIGUSR1 all the time while this thread computes; whether every result was the right one.
bool compute_under_signals() {
  const Tensor x = random_matrix(2, 3072, 1), w = random_matrix(512, 3072, 2);
  const Tensor expected = linear_forward(x, w, {});
  std::atomic<bool> done = false;
  std::thread sender([&] {
    while (!done) signal_this_process(SIGUSR1), std::this_thread::sleep_for(20us);
  });
  bool equal = true;
  for (int i = 0; i < 500; ++i)
    equal &= std::memcmp(linear_forward(x, w, {}).raw(), expected.raw(), expected.bytes()) == 0;
  done = true;
  sender.join();
  return equal;
}

bool are_blocked_here() {
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  return sigismember(&blocked, SIGUSR1) == 1 && sigismember(&blocked, SIGTERM) == 1 &&
         sigismember(&blocked, SIGINT) == 1;
}

TEST(StopAgreementTest, WaitingForAnAnswerIsNotTheMethods) {
  run_thread_ranks(2, {}, [](Comm& world) {
    world.ledger().set_phase("full");
    StopAgreement stop(world, 4, false);
    stop.ask();
    EXPECT_FALSE(stop.agreed_by_now());
    EXPECT_EQ(world.ledger().phase(), "full");
    const std::map<std::string, double>& waiting = world.ledger().waiting_seconds();
    EXPECT_FALSE(waiting.contains("full"));
    EXPECT_GT(waiting.at(StopAgreement::kLabel), 0);
  });
}

// engine/backend/cpu/gemm.h says what a handler would do there.
TEST_F(StopSignalTest, NoneInterruptsAThreadThatComputes) {
  EXPECT_EXIT(
      {
        listen_for_stop_signals();
        std::_Exit(compute_under_signals() && are_blocked_here() ? 75 : 1);
      },
      testing::ExitedWithCode(75), "");
}

}  // namespace
}  // namespace ab
