// SPDX-License-Identifier: MIT
//
// What the ranks of an NCCL world see when one of them stays away, fails, or has the GPU of another. Runs under mpirun
// with 3 ranks, on GPUs or on those of tests/ptx.
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "engine/comm/launcher.h"
#include "engine/comm/nccl_comm.h"
#include "engine/comm/rendezvous.h"
#include "engine/comm/texts.h"
#include "engine/device/device.h"
#include "tests/error_message.h"
#include "tests/ptx_gpu.h"

namespace ab {
namespace {

using namespace std::chrono_literals;
using test::contains;

class NcclFaultTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!launched_by_mpi()) GTEST_SKIP() << "needs mpirun -np 3";
    if (cuda_device_count() == 0) GTEST_SKIP() << cuda_unavailable_reason();
  }

  static std::unique_ptr<Comm> make_world(std::unique_ptr<Bootstrap> bootstrap, std::chrono::seconds timeout) {
    const int gpus = cuda_device_count();
    const bool too_few = gpus < 3 && !on_ptx_gpu();
    return make_nccl_comm(std::move(bootstrap), local_rank() % gpus, {.timeout = timeout, .share_gpu = too_few});
  }

  /// The world of a rendezvous; `name` tells it from those of other tests.
  static std::unique_ptr<Comm> meet_at(const std::string& name) {
    const Place place = find_place();
    const std::string job = gather_texts(*make_mpi_comm(), std::to_string(getpid()))[0];
    const std::string file = fmt::format("file://{}abtrain_nccl_{}_{}", testing::TempDir(), name, job);
    return make_world(make_rendezvous({place.rank, place.ranks, file, 30s}), 30s);
  }
};

TEST_F(NcclFaultTest, ARankThatStaysAwayIsMissedAfterTheTimeout) {
  const auto world = make_world(make_mpi_bootstrap({}), 1s);
  const int rank = world->rank();
  const auto group = world->split([](int member) { return member == 0 ? 0 : 1; }, "pair");  // {0} and {1, 2}
  if (rank == 2) std::this_thread::sleep_for(1800ms);
  if (rank != 1) return;
  EXPECT_EQ(test::message_of(ErrorKind::communication, [&] { group->barrier(); }),
            "barrier in group 'pair' waited 1 s on rank 1: a rank of the group has ended or does something else");
  // The world is lost: this returns at once.
  EXPECT_TRUE(contains(test::message_of(ErrorKind::communication, [&] { world->barrier(); }), "waited 1 s"));
}

TEST_F(NcclFaultTest, AnAbortReachesTheOthersOverTheRendezvous) {
  if (find_place().rank == 1) return meet_at("fault")->abort("disk on fire", 3);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(test::message_of(ErrorKind::data, [] { meet_at("fault")->barrier(); }), "rank 1 failed: disk on fire");
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
}

TEST_F(NcclFaultTest, ARankThatThrowsNamesItsErrorToTheOthersWhoseConnectionsBreakBefore) {
  const auto meet_in_group = [](Comm& world) {
    const auto group = world.duplicate("group");
    AB_CHECK_KIND(numerics, world.rank() != 1, "the loss is nan");
    group->barrier();
  };
  if (find_place().rank == 1) {
    const auto world = meet_at("throw");
    EXPECT_EQ(test::message_of(ErrorKind::numerics, [&] { meet_in_group(*world); }), "the loss is nan");
    std::this_thread::sleep_for(300ms);  // the group is gone, and the others have noticed
    return world->abort("the loss is nan", 5);
  }
  EXPECT_EQ(test::message_of(ErrorKind::numerics, [&] { meet_in_group(*meet_at("throw")); }),
            "rank 1 failed: the loss is nan");
}

TEST_F(NcclFaultTest, ARankWithoutMemoryIsNamedByTheOthers) {
  if (find_place().rank == 1) {
    const auto world = meet_at("memory");
    const Device gpu{DeviceKind::cuda, local_rank() % cuda_device_count()};
    const std::string message =
        test::message_of(ErrorKind::communication, [&] { Tensor({std::int64_t{1} << 48}, DType::float32, gpu); });
    EXPECT_TRUE(contains(message, "is out of memory: "));
    return world->abort(message, 6);
  }
  EXPECT_TRUE(contains(test::message_of(ErrorKind::communication, [] { meet_at("memory")->barrier(); }),
                       "rank 1 failed: GPU "));
}

TEST_F(NcclFaultTest, TwoRanksOnOneGpuAreRefusedUnlessTheyMayShareIt) {
  if (!on_ptx_gpu()) GTEST_SKIP() << "needs the GPU of tests/ptx";
  setenv("PTX_SHARED", "1", 1);
  EXPECT_TRUE(contains(
      test::message_of(ErrorKind::communication, [] { make_nccl_comm(make_mpi_bootstrap({}), 0, {.timeout = 30s}); }),
      "ranks 0 and 1 both use the GPU 0000:0"));
  const auto world = make_nccl_comm(make_mpi_bootstrap({}), 0, {.timeout = 30s, .share_gpu = true});
  world->barrier();
  EXPECT_EQ(std::getenv("NCCL_HOSTID"), "abtrain-rank-" + std::to_string(world->rank()));
  unsetenv("PTX_SHARED");
}

}  // namespace
}  // namespace ab
