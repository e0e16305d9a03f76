// SPDX-License-Identifier: MIT
//
// What the ranks of an MPI world see when one of them is missing or does something else. Runs under mpirun
// with 3 ranks. MPI is not finalised after such errors, so mpirun ends with an error and
// only the output tells each rank's result.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "engine/comm/comm.h"
#include "engine/comm/launcher.h"

namespace ab {
namespace {

using namespace std::chrono_literals;

class MpiFaultTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!launched_by_mpi()) GTEST_SKIP() << "needs mpirun -np 3";
    world_ = make_mpi_comm({.timeout = 1s, .wiring = {.all_reduce = algorithm()}});
    ASSERT_EQ(world_->size(), 3);
  }
  // mpirun ends everyone as soon as the first rank leaves: give all of them time to report.
  static void TearDownTestSuite() { std::this_thread::sleep_for(700ms); }
  virtual AllReduce algorithm() const { return AllReduce::direct; }
  int rank() const { return world_->rank(); }

  /// The message of the error that `body` ends with; "" without one.
  std::string error_of(const std::function<void()>& body) {
    try {
      body();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::communication);
      return error.what();
    }
    return "";
  }

  std::unique_ptr<Comm> world_;
};

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

TEST_F(MpiFaultTest, AMissingRankIsNamedAfterTheTimeout) {
  const auto group = world_->split([](int member) { return member == 0 ? 0 : 1; }, "pair");  // {0} and {1, 2}
  if (rank() == 2) return std::this_thread::sleep_for(1400ms);
  const std::string error = error_of([&] { group->barrier(); });
  EXPECT_EQ(error, rank() == 0 ? "" : "barrier in group 'pair' waited 1 s on rank 1; missing: rank 2");
  if (rank() == 0) std::this_thread::sleep_for(1s);
}

// Noticed after the time-out, these would be told as a rank that is missing.

TEST_F(MpiFaultTest, DifferentCallsAreNoticedBeforeTheTimeout) {
  const std::string error = error_of([&] {
    if (rank() == 2) world_->all_gather(Tensor::zeros(Shape{3}), Tensor(Shape{9}));
    else world_->all_reduce(Tensor::zeros(Shape{9}), ReduceOp::sum);
  });
  EXPECT_TRUE(contains(error, "ranks disagree on a collective of group 'world'")) << error;
  EXPECT_TRUE(contains(error, "all_gather") && contains(error, "all_reduce")) << error;
}

TEST_F(MpiFaultTest, DifferentSizesAreNoticedAtOnce) {
  const std::string error =
      error_of([&] { world_->all_reduce(Tensor::zeros(Shape{rank() == 2 ? 18 : 9}), ReduceOp::sum); });
  EXPECT_TRUE(contains(error, "ranks disagree on the size of all_reduce(sum)")) << error;
}

/// Messages that never come, by every way that they may take.
class MpiFaultOfAlgorithm : public MpiFaultTest, public testing::WithParamInterface<AllReduce> {
 protected:
  AllReduce algorithm() const override { return GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(Algorithms, MpiFaultOfAlgorithm,
                         testing::Values(AllReduce::direct, AllReduce::ring, AllReduce::tree));

TEST_P(MpiFaultOfAlgorithm, AMissingRankEndsAllInTime) {
  if (rank() == 2) return std::this_thread::sleep_for(1400ms);
  const std::string error = error_of([&] { world_->all_reduce(Tensor::zeros(Shape{9}), ReduceOp::sum); });
  EXPECT_TRUE(contains(error, "all_reduce(sum) of 9 float32 in group 'world' waited 1 s on rank")) << error;
  // Around a ring and on a tree rank 1 waits for rank 0, which waits.
  const bool knows = rank() == 0 || algorithm() == AllReduce::direct;
  EXPECT_TRUE(contains(error, knows ? "missing: rank 2" : "missing: rank 0")) << error;
}

}  // namespace
}  // namespace ab
