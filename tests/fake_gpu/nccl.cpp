// SPDX-License-Identifier: MIT
//
// NCCL's interface over MPI for the fake CUDA runtime, as strict as communicators that do not block are: calls return
// at once, work reaches the stream a little later from another thread, a communicator that is called before it has
// settled ends the test, and split leaves the handle of the new one empty until the old one has settled.
#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX 1
#endif
#include <mpi.h>
#include <nccl.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "tests/fake_gpu/stream.h"

struct ncclComm {
  MPI_Comm mpi = MPI_COMM_NULL;
  int rank = 0, size = 1;
  std::atomic<bool> settled = false, aborted = false;
};

namespace {

using Work = std::function<void()>;
constexpr std::chrono::microseconds kLate{200};

thread_local int group_depth = 0;
thread_local std::vector<Work> group_work;
thread_local std::pair<ncclComm*, cudaStream_t> group_target;

MPI_Datatype mpi_type(ncclDataType_t type) {
  switch (type) {
    case ncclFloat32: return MPI_FLOAT;
    case ncclFloat64: return MPI_DOUBLE;
    case ncclInt64: return MPI_INT64_T;
    case ncclBfloat16:
    case ncclFloat16: return MPI_INT16_T;  // transfers only
    default: return MPI_BYTE;
  }
}
std::size_t bytes_of(ncclDataType_t type, std::size_t count) {
  int size = 0;
  MPI_Type_size(mpi_type(type), &size);
  return static_cast<std::size_t>(size) * count;
}
MPI_Op mpi_op(ncclRedOp_t op) { return op == ncclMax ? MPI_MAX : MPI_SUM; }

void divide(void* values, std::size_t count, ncclDataType_t type, int by) {
  for (std::size_t i = 0; i < count; ++i)
    if (type == ncclFloat32) static_cast<float*>(values)[i] /= static_cast<float>(by);
    else static_cast<double*>(values)[i] /= by;
}

/// Until the peers have done their part, or for ever until the communicator is aborted, as a kernel would.
void finish(ncclComm* comm, MPI_Request request) {
  for (int done = 0; !done && !comm->aborted; std::this_thread::sleep_for(std::chrono::microseconds(20)))
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
}

void check_settled(const ncclComm* comm) {
  if (comm->settled) return;
  std::fprintf(stderr, "fake NCCL: a communicator was used before it had settled\n");
  std::abort();
}

ncclResult_t issue(ncclComm* comm, cudaStream_t stream, Work work) {
  check_settled(comm);
  if (group_depth > 0) {
    group_work.push_back(std::move(work));
    group_target = {comm, stream};
    return ncclSuccess;
  }
  comm->settled = false;
  std::thread([=] {
    std::this_thread::sleep_for(kLate);
    fake_gpu::enqueue(stream, work);
    comm->settled = true;
  }).detach();
  return ncclInProgress;
}

int as_int(std::size_t count) { return static_cast<int>(count); }

}  // namespace

extern "C" {

/// Streams call MPI from threads of their own.
int MPI_Init_thread(int* argc, char*** argv, int, int* provided) {
  return PMPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, provided);
}

const char* ncclGetErrorString(ncclResult_t) { return "an error"; }
const char* ncclGetLastError(ncclComm_t) { return ""; }
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) { return std::memset(id, 7, sizeof *id), ncclSuccess; }

ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  if (config->blocking != 0 || id.internal[sizeof id.internal - 1] != 7) return ncclInvalidArgument;
  ncclComm* comm = *made = new ncclComm;
  comm->rank = rank, comm->size = ranks;
  std::thread([comm] {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm->mpi);
    comm->settled = true;
  }).detach();
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int colour, int key, ncclComm_t* made, ncclConfig_t*) {
  check_settled(parent);
  parent->settled = false;
  std::thread([=] {
    auto* comm = new ncclComm;
    MPI_Comm_split(parent->mpi, colour, key, &comm->mpi);
    MPI_Comm_rank(comm->mpi, &comm->rank);
    MPI_Comm_size(comm->mpi, &comm->size);
    *made = comm;
    parent->settled = true;
    std::this_thread::sleep_for(kLate);
    comm->settled = true;
  }).detach();
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  return *state = comm->settled ? ncclSuccess : ncclInProgress, ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) { return check_settled(comm), ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return comm->aborted = true, ncclSuccess; }

ncclResult_t ncclGroupStart() { return ++group_depth, ncclSuccess; }
ncclResult_t ncclGroupEnd() {
  --group_depth;
  const std::vector<Work> all = std::exchange(group_work, {});
  if (all.empty()) return ncclSuccess;
  return issue(group_target.first, group_target.second, [all] {
    for (const Work& work : all) work();
  });
}

ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
  return issue(comm, stream, [=] {
    MPI_Request request;
    MPI_Iallreduce(in == out ? MPI_IN_PLACE : in, out, as_int(count), mpi_type(type), mpi_op(op), comm->mpi, &request);
    finish(comm, request);
    if (op == ncclAvg) divide(out, count, type, comm->size);
  });
}

ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return issue(comm, stream, [=] {
    if (comm->rank == root && in != out) std::memcpy(out, in, bytes_of(type, count));
    MPI_Request request;
    MPI_Ibcast(out, as_int(count), mpi_type(type), root, comm->mpi, &request);
    finish(comm, request);
  });
}

ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return issue(comm, stream, [=] {
    const void* mine = static_cast<char*>(out) + bytes_of(type, count) * static_cast<std::size_t>(comm->rank);
    MPI_Request request;
    MPI_Iallgather(in == mine ? MPI_IN_PLACE : in, as_int(count), mpi_type(type), out, as_int(count), mpi_type(type),
                   comm->mpi, &request);
    finish(comm, request);
  });
}

ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  return issue(comm, stream, [=] {
    MPI_Request request;
    MPI_Ireduce_scatter_block(in, out, as_int(count), mpi_type(type), mpi_op(op), comm->mpi, &request);
    finish(comm, request);
    if (op == ncclAvg) divide(out, count, type, comm->size);
  });
}

}  // extern "C"
