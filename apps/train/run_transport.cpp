// SPDX-License-Identifier: MIT
#include "apps/train/run_transport.h"

#include <algorithm>
#include <utility>

#include "apps/settings/hardware.h"
#include "engine/comm/nccl_comm.h"
#include "engine/comm/rendezvous.h"
#include "engine/core/machine.h"
#include "engine/core/threads.h"

namespace ab {
namespace {

constexpr int kMostThreadRanks = 1024;

std::unique_ptr<Bootstrap> find_each_other(const TrainConfig& config, const CommOptions& options) {
  if (config.rendezvous.empty() && find_launcher() == Launcher::mpi) return make_mpi_bootstrap(options);
  const Place place = find_place(config.rendezvous);
  return make_rendezvous({place.rank, place.ranks, place.address, options.timeout, place.job});
}

}  // namespace

Transport choose_transport(const TrainConfig& config, Launcher launcher) {
  const bool on_gpu = config.device != "cpu";
  const bool alone = launcher == Launcher::none && config.rendezvous.empty();
  Transport transport = alone ? Transport::threads : on_gpu ? Transport::nccl : Transport::mpi;
  if (config.transport == "threads") transport = Transport::threads;
  if (config.transport == "mpi") transport = Transport::mpi;
  if (config.transport == "nccl") transport = Transport::nccl;

  AB_CHECK(transport != Transport::threads || config.ranks <= kMostThreadRanks,
           "--ranks {}: one process has at most {} ranks as threads; start more as processes (mpirun -np {})",
           config.ranks, kMostThreadRanks, config.ranks);
  const bool may_be_mpi = launcher != Launcher::torchrun && config.rendezvous.empty();
  AB_CHECK(transport != Transport::mpi || may_be_mpi,
           "ranks on the CPU talk over MPI, which torchrun and --rendezvous do not start: use mpirun or srun, or "
           "--ranks N in one process, or --device cuda");
  AB_CHECK(
      transport == Transport::threads || !alone || config.ranks == 1,
      "--transport {} connects processes, and this is one alone that shall have {} ranks: start {} (mpirun -np {}), or "
      "give --transport threads",
      config.transport, config.ranks, config.ranks, config.ranks);
  AB_CHECK(transport != Transport::nccl || on_gpu, "NCCL connects GPUs; give --device cuda, or --transport mpi");
  AB_CHECK(transport != Transport::nccl || config.all_reduce == AllReduce::direct ||
               config.all_reduce == AllReduce::automatic,
           "--allreduce {} is for ranks on CPUs and threads; NCCL chooses for itself (NCCL_ALGO)",
           name_of(config.all_reduce));
  AB_CHECK(
      transport != Transport::nccl || config.network.empty(),
      "--network holds messages back, which NCCL does not allow; give --transport mpi or --ranks N in one process");
  AB_CHECK(
      transport == Transport::nccl || !config.share_gpu,
      "--share-gpu is for several processes on one GPU over NCCL; threads of one process (--ranks N) share it anyway");
  return transport;
}

GraphUse choose_graph_use(const TrainConfig& config) {
  if (config.cuda_graph == "off") return GraphUse::off;
  std::string obstacle;
  if (config.device == "cpu") obstacle = "only a GPU can run CUDA graphs; give --device cuda";
  else if (config.sync_bn != SyncBn::off)
    obstacle = "--sync-bn exchanges statistics inside forward, which a graph cannot; give --cuda-graph auto";
  if (config.cuda_graph == "auto") return obstacle.empty() ? GraphUse::if_possible : GraphUse::off;
  AB_CHECK(obstacle.empty(), "--cuda-graph on: {}", obstacle);
  return GraphUse::required;
}

std::unique_ptr<Comm> join_processes(const TrainConfig& config, Transport transport, const CommOptions& options) {
  if (transport == Transport::mpi) return make_mpi_comm(options);
  const Device device = choose_device(config.device);  // what is not there is refused before anyone waits for it
  check_nccl(device.index);
  return make_nccl_comm(find_each_other(config, options), device.index, options);
}

void set_compute_threads(int n, Comm& world) {
  const Uncounted uncounted(world.ledger());
  const std::string machine = name_of_machine() + "\n";
  std::vector<std::string> of_ranks = gather_texts(world, machine + to_text(available_cores()));
  std::swap(of_ranks[0], of_ranks[static_cast<std::size_t>(world.rank())]);
  std::vector<AvailableCores> here;  // this rank's first
  for (const std::string& of_rank : of_ranks)
    if (of_rank.starts_with(machine)) here.push_back(cores_from_text(of_rank.substr(machine.size())));
  // As many on every rank: others would sum in another order, and what ranks compute alike would differ.
  double least = cores_of_first(here);
  for (const std::string& cores : gather_texts(world, fmt::format("{}", least)))
    least = std::min(least, std::stod(cores));
  set_compute_threads_within(n, least);
}

}  // namespace ab
