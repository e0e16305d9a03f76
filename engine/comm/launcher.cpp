// SPDX-License-Identifier: MIT
#include "engine/comm/launcher.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "engine/comm/socket.h"
#include "engine/core/check.h"

namespace ab {
namespace {

/// A whole number at least 0; -1 when the variable is not set.
int number_in(const Environment& environment, const char* variable) {
  const char* text = environment(variable);
  if (!text) return -1;
  const std::string_view digits(text);
  int value = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  AB_CHECK(error == std::errc() && end == digits.data() + digits.size() && value >= 0,
           "the environment variable {} is '{}'; the launcher should have set it to a number", variable, text);
  return value;
}

/// The first of these variables that is set; -1 when none is.
int first_number(const Environment& environment, std::initializer_list<const char*> variables) {
  for (const char* variable : variables)
    if (const int value = number_in(environment, variable); value >= 0) return value;
  return -1;
}

std::string torchrun_address(const Environment& environment) {
  const char* host = environment("MASTER_ADDR");
  int port = number_in(environment, "MASTER_PORT");
  AB_CHECK(host && port > 0, "ranks need a place to meet: set MASTER_ADDR and MASTER_PORT, or give --rendezvous");
  // torchrun may keep a store of its own at MASTER_PORT, and says so.
  const char* store = environment("TORCHELASTIC_USE_AGENT_STORE");
  if (store && std::string_view(store) == "True") ++port;
  return "tcp://" + HostPort{host, port}.str();
}

std::string slurm_address(const Environment& environment) {
  const char* hosts = environment("SLURM_STEP_NODELIST");
  AB_CHECK(hosts, "srun has not set SLURM_STEP_NODELIST; say where ranks meet with --rendezvous tcp://host:port");
  const int job = std::max(0, number_in(environment, "SLURM_JOB_ID"));
  const int step = std::max(0, number_in(environment, "SLURM_STEP_ID"));
  return fmt::format("tcp://{}:{}", first_host(hosts), 20000 + (job % 10000 * 31 + step % 10000) % 10000);
}

/// The job's name by the launcher, with a comma behind it; empty when it has none.
std::string job_name(Launcher launcher, const Environment& environment) {
  const auto text = [&](const char* variable) { return environment(variable) ? environment(variable) : ""; };
  if (launcher == Launcher::slurm) return fmt::format("Slurm's {}.{}, ", text("SLURM_JOB_ID"), text("SLURM_STEP_ID"));
  const bool is_named = launcher == Launcher::torchrun && environment("TORCHELASTIC_RUN_ID");
  return is_named ? fmt::format("torchrun's {}, ", text("TORCHELASTIC_RUN_ID")) : "";
}

}  // namespace

const char* process_environment(const char* variable) { return std::getenv(variable); }

Launcher find_launcher(const Environment& environment) {
  const auto agree = [&](const char* variable, const char* other) {
    return environment(variable) && number_in(environment, variable) == number_in(environment, other);
  };
  if (environment("TORCHELASTIC_RUN_ID") && number_in(environment, "WORLD_SIZE") > 1) return Launcher::torchrun;
  // Set for the tasks that they start. SLURM_NTASKS is no sign of a launch, as batch scripts have it too; nor is
  // PMIX_RANK, which lone tasks have.
  const int tasks = first_number(environment, {"OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMI_SIZE"});
  // srun by PMI-2 sets PMI_SIZE and PMI_RANK, as mpirun of MPICH does; either may have started the other.
  const bool mpirun_did =
      environment("OMPI_COMM_WORLD_SIZE") || environment("MV2_COMM_WORLD_SIZE") || environment("MPI_LOCALRANKID");
  const bool srun_did = !mpirun_did && agree("PMI_SIZE", "SLURM_STEP_NUM_TASKS") && agree("PMI_RANK", "SLURM_PROCID");
  if (tasks >= 0 && !srun_did) return tasks > 1 ? Launcher::mpi : Launcher::none;
  if (environment("RANK") && number_in(environment, "WORLD_SIZE") > 1) return Launcher::torchrun;
  return number_in(environment, "SLURM_STEP_NUM_TASKS") > 1 ? Launcher::slurm : Launcher::none;
}

bool launched_by_mpi(const Environment& environment) {
  const Launcher launcher = find_launcher(environment);
  return launcher == Launcher::mpi || launcher == Launcher::slurm;
}

int local_rank(const Environment& environment) {
  // A launcher that does not number the processes of a machine has, most likely, one machine.
  int number = 0;
  const Launcher launcher = find_launcher(environment);
  if (launcher == Launcher::mpi)
    number = first_number(environment, {"OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID",
                                        "SLURM_LOCALID", "PMI_RANK"});
  if (launcher == Launcher::slurm) number = first_number(environment, {"SLURM_LOCALID", "SLURM_PROCID"});
  if (launcher == Launcher::torchrun) number = first_number(environment, {"LOCAL_RANK", "RANK"});
  return std::max(0, number);
}

Place find_place(const std::string& rendezvous, const Environment& environment) {
  const Launcher launcher = find_launcher(environment);
  if (launcher == Launcher::none && number_in(environment, "RANK") == 0 && number_in(environment, "WORLD_SIZE") == 1)
    return {.rank = 0, .ranks = 1, .address = rendezvous};
  AB_CHECK(launcher != Launcher::none || rendezvous.empty(),
           "processes that meet need numbers: start them with torchrun, srun or mpirun, or set RANK and WORLD_SIZE");
  Place place;
  place.address = rendezvous;
  if (launcher == Launcher::mpi) {
    place.rank = first_number(environment, {"OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PMI_RANK"});
    place.ranks = first_number(environment, {"OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE", "PMI_SIZE"});
  } else if (launcher == Launcher::slurm) {
    place.rank = number_in(environment, "SLURM_PROCID");
    place.ranks = number_in(environment, "SLURM_STEP_NUM_TASKS");
    if (rendezvous.empty()) place.address = slurm_address(environment);
  } else if (launcher == Launcher::torchrun) {
    place.rank = number_in(environment, "RANK");
    place.ranks = number_in(environment, "WORLD_SIZE");
    if (rendezvous.empty()) place.address = torchrun_address(environment);
  }
  place.job = fmt::format("{}{} ranks", job_name(launcher, environment), place.ranks);
  AB_CHECK(0 <= place.rank && place.rank < place.ranks,
           "the environment says that this process is rank {} of {}; ranks are numbered from 0", place.rank,
           place.ranks);
  return place;
}

std::string first_host(const std::string& slurm_hosts) {
  // A range keeps its leading zeros: the first name of prefix[03-05,9]suffix is prefix03suffix.
  const std::size_t end = slurm_hosts.find_first_of("[,");
  std::string host = slurm_hosts.substr(0, end);
  if (end == std::string::npos || slurm_hosts[end] == ',') return host;
  const std::size_t close = slurm_hosts.find(']', end);
  host += slurm_hosts.substr(end + 1, slurm_hosts.find_first_of("-,]", end + 1) - end - 1);
  if (close != std::string::npos) host += slurm_hosts.substr(close + 1, slurm_hosts.find(',', close) - close - 1);
  return host;
}

}  // namespace ab
