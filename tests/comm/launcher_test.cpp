// SPDX-License-Identifier: MIT
//
// Who started this process, and what it said: for environments of launchers alone and inside each other.
#include "engine/comm/launcher.h"

#include <gtest/gtest.h>

#include <map>

#include "engine/comm/nccl_comm.h"
#include "tests/error_message.h"

namespace ab {
namespace {

using Variables = std::map<std::string, std::string>;

/// An environment with the variables of the later ones where several have the same.
Environment environment_of(const std::vector<Variables>& layers) {
  Variables all;
  for (const Variables& layer : layers)
    for (const auto& [name, value] : layer) all[name] = value;
  return [all](const char* name) -> const char* {
    const auto found = all.find(name);
    return found == all.end() ? nullptr : found->second.c_str();
  };
}

const Variables kOpenMpi{
    {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}};
const Variables kMpich{{"PMI_SIZE", "4"}, {"PMI_RANK", "2"}, {"MPI_LOCALRANKID", "0"}};
const Variables kBatchScript{{"SLURM_JOB_ID", "70001"}, {"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}};
const Variables kSrun{
    {"SLURM_JOB_ID", "70001"}, {"SLURM_STEP_ID", "2"}, {"SLURM_STEP_NUM_TASKS", "8"},        {"SLURM_PROCID", "5"},
    {"SLURM_LOCALID", "1"},    {"SLURM_NTASKS", "8"},  {"SLURM_STEP_NODELIST", "gpu[07-08]"}};
const Variables kPmi2{{"PMI_SIZE", "8"}, {"PMI_RANK", "5"}};
const Variables kByHand{{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}};
const Variables kTorchrun{{"RANK", "6"},
                          {"WORLD_SIZE", "16"},
                          {"LOCAL_RANK", "2"},
                          {"MASTER_ADDR", "node1"},
                          {"MASTER_PORT", "29500"},
                          {"TORCHELASTIC_RUN_ID", "none"}};

TEST(Launcher, IsKnownByTheVariablesItSets) {
  EXPECT_EQ(find_launcher(environment_of({})), Launcher::none);
  EXPECT_EQ(find_launcher(environment_of({kOpenMpi})), Launcher::mpi);
  EXPECT_EQ(find_launcher(environment_of({kMpich})), Launcher::mpi);
  EXPECT_EQ(find_launcher(environment_of({{{"MV2_COMM_WORLD_SIZE", "2"}}})), Launcher::mpi);
  EXPECT_EQ(find_launcher(environment_of({kSrun})), Launcher::slurm);
  EXPECT_EQ(find_launcher(environment_of({kTorchrun})), Launcher::torchrun);
  EXPECT_EQ(find_launcher(environment_of({kByHand})), Launcher::torchrun);
}

TEST(Launcher, ABatchScriptOrALoneTaskIsNotLaunched) {
  EXPECT_EQ(find_launcher(environment_of({kBatchScript})), Launcher::none);
  EXPECT_EQ(find_launcher(environment_of({{{"OMPI_COMM_WORLD_SIZE", "1"}}})), Launcher::none);
  EXPECT_EQ(find_launcher(environment_of({kTorchrun, {{"WORLD_SIZE", "1"}}})), Launcher::none);
  EXPECT_EQ(find_launcher(environment_of({{{"WORLD_SIZE", "4"}}})), Launcher::none);
}

TEST(Launcher, TheInnerOneOfTwoDecides) {
  EXPECT_EQ(find_launcher(environment_of({kSrun, kOpenMpi})), Launcher::mpi);
  EXPECT_EQ(find_launcher(environment_of({kSrun, kTorchrun})), Launcher::torchrun);
  EXPECT_EQ(find_launcher(environment_of({kOpenMpi, kTorchrun})), Launcher::torchrun);
  EXPECT_EQ(find_launcher(environment_of({kOpenMpi, kByHand})), Launcher::mpi);
  EXPECT_EQ(find_launcher(environment_of({kSrun, {{"OMPI_COMM_WORLD_SIZE", "1"}}})), Launcher::none);
  EXPECT_EQ(find_launcher(environment_of({kSrun, kPmi2})), Launcher::slurm) << "srun --mpi=pmi2";
  EXPECT_EQ(find_launcher(environment_of({kSrun, kPmi2, kOpenMpi})), Launcher::mpi);
  EXPECT_EQ(find_launcher(environment_of({kSrun, kMpich})), Launcher::mpi) << "processes of hydra";
  EXPECT_EQ(find_launcher(environment_of({kSrun, kPmi2, {{"MPI_LOCALRANKID", "1"}}})), Launcher::mpi);
}

TEST(Launcher, MpiJoinsTasksOfMpirunAndSrun) {
  EXPECT_TRUE(launched_by_mpi(environment_of({kOpenMpi})));
  EXPECT_TRUE(launched_by_mpi(environment_of({kSrun})));
  EXPECT_FALSE(launched_by_mpi(environment_of({kTorchrun})));
  EXPECT_FALSE(launched_by_mpi(environment_of({kBatchScript})));
}

void expect_place(const Place& place, int rank, int ranks, const std::string& address) {
  EXPECT_EQ(place.rank, rank);
  EXPECT_EQ(place.ranks, ranks);
  EXPECT_EQ(place.address, address);
}

TEST(Place, IsReadFromTheLaunchersVariables) {
  expect_place(find_place("", environment_of({kTorchrun})), 6, 16, "tcp://node1:29500");
  expect_place(find_place("", environment_of({kByHand})), 1, 2, "tcp://node1:29500");
  expect_place(find_place("", environment_of({kByHand, {{"MASTER_ADDR", "::1"}}})), 1, 2, "tcp://[::1]:29500");
  expect_place(find_place("", environment_of({kSrun})), 5, 8, "tcp://gpu07:20033");
  expect_place(find_place("", environment_of({kOpenMpi})), 3, 4, "");
  expect_place(find_place("", environment_of({kMpich})), 2, 4, "");
  expect_place(find_place("", environment_of({kBatchScript})), 0, 1, "");
  expect_place(find_place("", environment_of({kSrun, kTorchrun})), 6, 16, "tcp://node1:29500");
}

TEST(Place, NamesTheJob) {
  EXPECT_EQ(find_place("", environment_of({kTorchrun})).job, "torchrun's none, 16 ranks");
  EXPECT_EQ(find_place("", environment_of({kSrun, kTorchrun})).job, "torchrun's none, 16 ranks");
  EXPECT_EQ(find_place("", environment_of({kByHand})).job, "2 ranks");
  EXPECT_EQ(find_place("", environment_of({kSrun})).job, "Slurm's 70001.2, 8 ranks");
}

TEST(Place, OfALoneProcessThatIsToldWhereToMeet) {
  const Place place = find_place("tcp://a:1", environment_of({{{"RANK", "0"}, {"WORLD_SIZE", "1"}}}));
  EXPECT_EQ(place.rank, 0);
  EXPECT_EQ(place.ranks, 1);
  EXPECT_EQ(place.address, "tcp://a:1");
}

TEST(Place, LocalRanksChooseGpus) {
  EXPECT_EQ(local_rank(environment_of({})), 0);
  EXPECT_EQ(local_rank(environment_of({kOpenMpi})), 1);
  EXPECT_EQ(local_rank(environment_of({kMpich})), 0);
  EXPECT_EQ(local_rank(environment_of({kSrun})), 1);
  EXPECT_EQ(local_rank(environment_of({kTorchrun})), 2);
  EXPECT_EQ(local_rank(environment_of({kByHand})), 1);
}

TEST(Place, MakesWayForTorchrunsOwnStore) {
  const Variables store{{"TORCHELASTIC_USE_AGENT_STORE", "True"}}, none{{"TORCHELASTIC_USE_AGENT_STORE", "False"}};
  EXPECT_EQ(find_place("", environment_of({kTorchrun, store})).address, "tcp://node1:29501");
  EXPECT_EQ(find_place("", environment_of({kTorchrun, none})).address, "tcp://node1:29500");
}

TEST(Place, TheGivenAddressWins) {
  expect_place(find_place("tcp://a:1", environment_of({kTorchrun})), 6, 16, "tcp://a:1");
  expect_place(find_place("tcp://a:1", environment_of({kSrun})), 5, 8, "tcp://a:1");
  expect_place(find_place("file:///x", environment_of({{{"RANK", "0"}, {"WORLD_SIZE", "2"}}})), 0, 2, "file:///x");
}

TEST(Place, WhatCannotBeIsRefused) {
  const auto message = [](const std::string& rendezvous, const Variables& variables) {
    return test::message_of(ErrorKind::config, [&] { find_place(rendezvous, environment_of({kByHand, variables})); });
  };
  EXPECT_TRUE(test::contains(message("", {{"WORLD_SIZE", "two"}}), "WORLD_SIZE is 'two'"));
  EXPECT_TRUE(test::contains(message("", {{"RANK", "-1"}}), "RANK is '-1'"));
  EXPECT_TRUE(test::contains(message("", {{"RANK", "2"}}), "this process is rank 2 of 2"));
  EXPECT_TRUE(test::contains(test::message_of(ErrorKind::config, [] { find_place("tcp://a:1", environment_of({})); }),
                             "processes that meet need numbers"));
  EXPECT_TRUE(test::contains(test::message_of(ErrorKind::config,
                                              [] {
                                                find_place("", environment_of({{{"RANK", "0"}, {"WORLD_SIZE", "2"}}}));
                                              }),
                             "ranks need a place to meet"));
}

TEST(SlurmHosts, FirstNameOfAList) {
  EXPECT_EQ(first_host("node1"), "node1");
  EXPECT_EQ(first_host("node1,node2"), "node1");
  EXPECT_EQ(first_host("gpu[03-05,9],node1"), "gpu03");
  EXPECT_EQ(first_host("gpu[7,9]"), "gpu7");
  EXPECT_EQ(first_host("r1n[004-010]-ib,r2n1"), "r1n004-ib");
  EXPECT_EQ(first_host("gpu[1"), "gpu1");
  EXPECT_EQ(first_host(""), "");
}

TEST(SharingAGpu, EveryRankIsAHostOfItsOwnThatTalksOverLoopback) {
  const auto value_of = [](int rank, const std::string& name) {
    for (const auto& [variable, value] : nccl_sharing_environment(rank))
      if (variable == name) return value;
    return std::string();
  };
  EXPECT_NE(value_of(0, "NCCL_HOSTID"), value_of(1, "NCCL_HOSTID"));
  for (const char* path : {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE"})
    EXPECT_EQ(value_of(1, path), "1") << path;
  for (const char* feature : {"NCCL_NVLS_ENABLE", "NCCL_CUMEM_ENABLE"}) EXPECT_EQ(value_of(1, feature), "0") << feature;
  EXPECT_EQ(value_of(1, "NCCL_NET"), "Socket");
  EXPECT_EQ(value_of(1, "NCCL_SOCKET_IFNAME"), "lo");
}

}  // namespace
}  // namespace ab
