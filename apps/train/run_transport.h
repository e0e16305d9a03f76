#pragma once
// SPDX-License-Identifier: MIT
//
// From the settings of a run and the launcher of this process to what its ranks are and talk over.

#include <memory>

#include "apps/settings/config.h"
#include "apps/train/train_step.h"
#include "engine/comm/comm.h"
#include "engine/comm/launcher.h"
#include "engine/comm/texts.h"

namespace ab {

enum class Transport { threads, mpi, nccl };

/// As --transport says; for auto threads of a process that was started alone, MPI between processes on CPUs and NCCL
/// between processes on GPUs. Throws Error(config) where device, launcher and transport do not go together.
Transport choose_transport(const TrainConfig& config, Launcher launcher);

/// Whether steps are captured in CUDA graphs, as --cuda-graph says; for auto on a GPU, unless batch norm is synchronised,
/// which exchanges statistics in forward. Throws Error(config) for on where it cannot be.
GraphUse choose_graph_use(const TrainConfig& config);

/// The world of a process among others, over mpi or nccl. NCCL's ranks find each other where --rendezvous says, else
/// over MPI under mpirun, else where torchrun's or Slurm's variables say.
std::unique_ptr<Comm> join_processes(const TrainConfig& config, Transport transport, const CommOptions& options);

/// set_compute_threads() for ranks that are processes, each with an affinity mask of its own: cores and quotas are divided among
/// those that share them, and all get as many as the one with the fewest. Collective. Not counted in the ledger.
void set_compute_threads(int n, Comm& world);

}  // namespace ab
