#pragma once
// SPDX-License-Identifier: MIT
//
// The launcher that started this process as one of several, read from the environment. Launchers may be nested (torchrun inside
// srun, mpirun inside a Slurm allocation) and the inner one inherits the variables of the outer one; the inner one
// decides.

#include <functional>
#include <string>

namespace ab {

enum class Launcher {
  none,      ///< a process of its own
  mpi,       ///< mpirun of Open MPI, MPICH or MVAPICH
  slurm,     ///< srun; a batch script on a Slurm node is not a task of srun
  torchrun,  ///< torchrun, or anything else that numbers its processes by RANK and WORLD_SIZE
};

/// Value of a variable, or null; as std::getenv.
using Environment = std::function<const char*(const char*)>;
const char* process_environment(const char* variable);

Launcher find_launcher(const Environment& environment = process_environment);

/// True when this process is one of several that MPI can join into one world: mpirun's or srun's.
bool launched_by_mpi(const Environment& environment = process_environment);

/// The number of this process among those of its machine; 0 without a launcher.
int local_rank(const Environment& environment = process_environment);

/// A process among those of its job.
struct Place {
  int rank = 0, ranks = 1;
  std::string address{};  ///< where they meet, see rendezvous.h; empty under mpirun
  std::string job{};      ///< which job that is: Slurm's or torchrun's name for it, and the number of its ranks
};

/// The place that the launcher has told this process; without one, a world of one. `rendezvous` is where the ranks shall meet;
/// when it is empty,
///   torchrun   tcp://MASTER_ADDR:MASTER_PORT, one port higher if torchrun's own store has that one
///   srun       the first host of the job step, at a port between 20000 and 29999 made from job and step
///   mpirun     nowhere: they have MPI
/// Throws Error(config) when a number is none, or when ranks shall meet and nobody has
/// numbered them or said where.
Place find_place(const std::string& rendezvous = "", const Environment& environment = process_environment);

/// The first name of a list of hosts as Slurm writes them: "gpu[03-05,9],node1" gives "gpu03".
std::string first_host(const std::string& slurm_hosts);

}  // namespace ab
