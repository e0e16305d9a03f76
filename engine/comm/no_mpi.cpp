// SPDX-License-Identifier: MIT
//
// Stands in for mpi_comm.cpp in builds without MPI.
#include "engine/comm/comm.h"

namespace ab {

std::unique_ptr<Comm> make_mpi_comm(const CommOptions& /*options*/) {
  throw Error(ErrorKind::communication,
              "this build of abtrain has no MPI: build with AB_WITH_MPI=ON to run on several processes, "
              "or start a single process");
}

}  // namespace ab
