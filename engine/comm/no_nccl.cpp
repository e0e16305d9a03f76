// SPDX-License-Identifier: MIT
//
// Stands in for nccl_comm.cpp in builds without NCCL.
#include "engine/comm/nccl_comm.h"
#include "engine/device/device.h"

namespace ab {

void check_nccl(int device_index) {
  check_cuda_device(device_index);
  throw Error(ErrorKind::communication,
              "this build of abtrain has no NCCL: build with AB_WITH_NCCL=ON, give --transport mpi under mpirun, or "
              "start a single process");
}

std::unique_ptr<Comm> make_nccl_comm(std::unique_ptr<Bootstrap> /*bootstrap*/, int device_index,
                                     const CommOptions& /*options*/) {
  check_nccl(device_index);
  return nullptr;
}

}  // namespace ab
