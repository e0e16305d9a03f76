// SPDX-License-Identifier: MIT
//
// What ranks talk over: chosen from settings and launcher, and refused in one sentence where they do not go together.
#include "apps/train/run_transport.h"

#include "engine/device/device.h"
#include "tests/program_test.h"

namespace ab {
namespace {

Transport choice(const std::string& transport, const std::string& device, Launcher launcher,
                 const std::string& rendezvous = "") {
  TrainConfig config;
  config.transport = transport, config.device = device, config.rendezvous = rendezvous;
  return choose_transport(config, launcher);
}

std::string refusal(const std::string& transport, const std::string& device, Launcher launcher,
                    const std::string& rendezvous = "") {
  return test::message_of(ErrorKind::config, [&] { choice(transport, device, launcher, rendezvous); });
}

TEST(RunTransport, AutoFollowsTheLauncherAndTheDevice) {
  EXPECT_EQ(choice("auto", "cpu", Launcher::none), Transport::threads);
  EXPECT_EQ(choice("auto", "cuda:1", Launcher::none), Transport::threads);
  for (const Launcher launcher : {Launcher::mpi, Launcher::slurm}) {
    EXPECT_EQ(choice("auto", "cpu", launcher), Transport::mpi);
    EXPECT_EQ(choice("auto", "cuda", launcher), Transport::nccl);
  }
  EXPECT_EQ(choice("auto", "cuda", Launcher::torchrun), Transport::nccl);
  EXPECT_EQ(choice("auto", "cuda", Launcher::mpi, "tcp://a:1"), Transport::nccl);
}

TEST(RunTransport, AWordIsObeyed) {
  EXPECT_EQ(choice("threads", "cuda", Launcher::mpi), Transport::threads);
  EXPECT_EQ(choice("mpi", "cuda", Launcher::mpi), Transport::mpi);
  EXPECT_EQ(choice("mpi", "cpu", Launcher::none), Transport::mpi);
  EXPECT_EQ(choice("nccl", "cuda", Launcher::none), Transport::nccl);
}

TEST(RunTransport, WhatDoesNotGoTogetherIsRefused) {
  EXPECT_TRUE(test::contains(refusal("auto", "cpu", Launcher::torchrun), "use mpirun or srun, or --ranks N"));
  EXPECT_TRUE(test::contains(refusal("auto", "cpu", Launcher::mpi, "tcp://a:1"), "--rendezvous do not start"));
  EXPECT_TRUE(test::contains(refusal("mpi", "cuda", Launcher::torchrun), "which torchrun"));
  EXPECT_TRUE(test::contains(refusal("nccl", "cpu", Launcher::mpi), "give --device cuda"));
  TrainConfig of_processes;  // as their config.toml has it
  of_processes.transport = "mpi", of_processes.ranks = 2;
  EXPECT_EQ(choose_transport(of_processes, Launcher::mpi), Transport::mpi);
  EXPECT_TRUE(test::contains(
      test::message_of(ErrorKind::config, [&] { choose_transport(of_processes, Launcher::none); }), "mpirun -np 2"));
  of_processes.ranks = 2000;
  EXPECT_EQ(choose_transport(of_processes, Launcher::slurm), Transport::mpi);
  of_processes.transport = "auto";
  EXPECT_TRUE(test::contains(
      test::message_of(ErrorKind::config, [&] { choose_transport(of_processes, Launcher::none); }),
      "--ranks 2000: one process has at most 1024 ranks as threads; start more as processes (mpirun -np 2000)"));
  TrainConfig shared;
  shared.share_gpu = true;
  EXPECT_THROW(choose_transport(shared, Launcher::none), Error);
}

class LaunchedProgramTest : public test::ProgramTest {
 protected:
  /// As one of two processes that torchrun started.
  test::Outcome run_as_rank(int rank, const std::string& arguments) const {
    return run(arguments, fmt::format("env RANK={} WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500", rank));
  }
};

TEST_F(LaunchedProgramTest, TorchrunOnTheCpuIsAConfigurationError) {
  const test::Outcome outcome = run_as_rank(1, tiny_train("run"));
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_TRUE(test::contains(outcome.err, "ranks on the CPU talk over MPI"));
  EXPECT_FALSE(std::filesystem::exists(path("run")));
}

TEST_F(LaunchedProgramTest, WithoutAGpuNobodyWaitsForTheOthers) {
  if (cuda_device_count() > 0) GTEST_SKIP() << "there is a GPU";
  const test::Outcome outcome = run_as_rank(1, tiny_train("run", "--device cuda"));
  EXPECT_EQ(outcome.exit_code, 6) << outcome.err;
  EXPECT_TRUE(test::contains(outcome.err, cuda_unavailable_reason()));
  EXPECT_FALSE(std::filesystem::exists(path("run")));
}

}  // namespace
}  // namespace ab
