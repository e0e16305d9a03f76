// SPDX-License-Identifier: MIT
//
// NCCL's interface over files for the CUDA runtime beside it, as strict as communicators that do not block are: calls return
// at once, work reaches the stream a little later from another thread, a communicator that is called before it has
// settled ends the test, split leaves the handle of the new one empty until the old one has settled, and a handle on the
// stack ends the test too: it may be written after its function has returned.
#include <fcntl.h>
#include <nccl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/core/dtype.h"
#include "tests/ptx/faults.h"
#include "tests/ptx/memory.h"
#include "tests/ptx/streams.h"

struct ncclComm {
  std::string path;  // that its files begin with, on all ranks
  int rank = 0, size = 1;
  int collectives = 0, splits = 0;
  std::map<int, int> sent{}, received{};  // messages, by peer
  std::atomic<bool> settled = false, aborted = false;
};

namespace {

using Work = std::function<void()>;
using Bytes = std::vector<char>;
constexpr std::chrono::microseconds kLate{200}, kPoll{20};

thread_local int group_depth = 0;
thread_local std::vector<Work> group_work;
thread_local std::pair<ncclComm*, cudaStream_t> group_target;

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat64:
    case ncclInt64: return 8;
    case ncclFloat32: return 4;
    case ncclBfloat16:
    case ncclFloat16: return 2;
    default: return 1;
  }
}

/// 16-bit sums are rounded at every hop.
template <class T> void reduce_into(char* result, const char* other, std::size_t count, ncclRedOp_t op) {
  for (std::size_t i = 0; i < count; ++i) {
    T a, b;
    std::memcpy(&a, result + i * sizeof(T), sizeof(T));
    std::memcpy(&b, other + i * sizeof(T), sizeof(T));
    a = op == ncclMax ? (b > a ? b : a) : static_cast<T>(a + b);
    std::memcpy(result + i * sizeof(T), &a, sizeof(T));
  }
}

template <class T> void divide(char* values, std::size_t count, int by) {
  for (std::size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, values + i * sizeof(T), sizeof(T));
    value = static_cast<T>(value / static_cast<ab::compute_t<T>>(by));
    std::memcpy(values + i * sizeof(T), &value, sizeof(T));
  }
}

template <class T> Bytes reduce_as(const std::vector<Bytes>& operands, ncclRedOp_t op) {
  Bytes result = operands[0];
  const std::size_t count = result.size() / sizeof(T);
  for (std::size_t r = 1; r < operands.size(); ++r) reduce_into<T>(result.data(), operands[r].data(), count, op);
  if (op == ncclAvg) divide<T>(result.data(), count, static_cast<int>(operands.size()));
  return result;
}

/// In rank order.
Bytes reduce(const std::vector<Bytes>& operands, ncclDataType_t type, ncclRedOp_t op) {
  switch (type) {
    case ncclFloat32: return reduce_as<float>(operands, op);
    case ncclFloat64: return reduce_as<double>(operands, op);
    case ncclBfloat16: return reduce_as<ab::bfloat16>(operands, op);
    case ncclFloat16: return reduce_as<ab::float16>(operands, op);
    case ncclInt64: return reduce_as<std::int64_t>(operands, op);
    default: break;
  }
  std::fprintf(stderr, "PTX fault: NCCL: a reduction of a type that the real one may not take\n");
  std::abort();
}

/// Adds this rank to a list; true when it is the last one.
bool all_have_signed(const ncclComm* comm, const std::string& list) {
  const int file = open(list.c_str(), O_CREAT | O_APPEND | O_WRONLY, 0600);
  struct stat status {};
  const bool all = write(file, "x", 1) == 1 && fstat(file, &status) == 0 && status.st_size == comm->size;
  close(file);
  return all;
}

/// What every rank brings; waits for ever, as a kernel would, until the communicator is aborted: then the result is empty.
/// `meeting`: its name, the same on all ranks.
std::vector<Bytes> exchange(ncclComm* comm, const std::string& meeting, const void* mine, std::size_t bytes) {
  const std::string path = comm->path + meeting + ".";
  const auto file_of = [&](int rank) { return path + std::to_string(rank); };
  const std::string unfinished = file_of(comm->rank) + ".part";
  std::ofstream(unfinished, std::ios::binary)
      .write(static_cast<const char*>(mine), static_cast<std::streamsize>(bytes));
  std::filesystem::rename(unfinished, file_of(comm->rank));
  std::vector<Bytes> all;
  for (int r = 0; r < comm->size; ++r) {
    for (; !std::filesystem::exists(file_of(r)); std::this_thread::sleep_for(kPoll))
      if (comm->aborted) return {};
    Bytes& theirs = all.emplace_back(std::filesystem::file_size(file_of(r)));
    std::ifstream(file_of(r), std::ios::binary).read(theirs.data(), static_cast<std::streamsize>(theirs.size()));
  }
  if (all_have_signed(comm, path + "readers")) {
    for (int r = 0; r < comm->size; ++r) std::filesystem::remove(file_of(r));
    std::filesystem::remove(path + "readers");
  }
  return all;
}

void check_settled(const ncclComm* comm) {
  if (comm->settled) return;
  std::fprintf(stderr, "PTX fault: NCCL: a communicator was used before it had settled\n");
  std::abort();
}

void check_outlives_its_caller(const ncclComm_t* made) {
  pthread_attr_t attributes;
  void* stack = nullptr;
  std::size_t bytes = 0;
  pthread_getattr_np(pthread_self(), &attributes);
  pthread_attr_getstack(&attributes, &stack, &bytes);
  pthread_attr_destroy(&attributes);
  const auto offset = reinterpret_cast<std::uintptr_t>(made) - reinterpret_cast<std::uintptr_t>(stack);
  if (offset >= bytes) return;
  std::fprintf(stderr, "PTX fault: NCCL: the handle of a new communicator lies on the stack\n");
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
    ptx::enqueue(stream, work);
    comm->settled = true;
  }).detach();
  return ncclInProgress;
}

void write_to(void* to, const char* from, std::size_t bytes) {
  if (bytes == 0 || !ptx::is_on_device(to, bytes, "a collective")) return;
  std::memcpy(ptx::on_host(to), from, bytes);
  ptx::set_defined(to, bytes);
}

Bytes read_from(const void* at, std::size_t bytes) {
  if (bytes == 0 || !ptx::is_on_device(at, bytes, "a collective")) return Bytes(bytes);
  if (!ptx::is_defined(at, bytes)) ptx::report("a collective reads what nobody has written");
  const char* const begin = ptx::on_host(static_cast<const char*>(at));
  return Bytes(begin, begin + bytes);
}

/// A collective in which every rank brings `bytes` bytes; `use` is given those of all.
ncclResult_t meet(ncclComm* comm, cudaStream_t stream, const void* mine, std::size_t bytes,
                  std::function<void(const std::vector<Bytes>&)> use) {
  return issue(comm, stream, [=] {
    const Bytes own = read_from(mine, bytes);
    const std::vector<Bytes> all =
        exchange(comm, "collective" + std::to_string(comm->collectives++), own.data(), bytes);
    if (!all.empty()) use(all);
  });
}

std::string message_of(const ncclComm* comm, int from, int to, int number) {
  return comm->path + "message" + std::to_string(from) + "to" + std::to_string(to) + "." + std::to_string(number);
}

}  // namespace

extern "C" {

const char* ncclGetErrorString(ncclResult_t) { return "an error"; }
const char* ncclGetLastError(ncclComm_t) { return ""; }

/// A folder that all ranks see, and sevens behind it: all of it has to arrive.
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::string folder = (std::filesystem::temp_directory_path() / "ptx_nccl_XXXXXX").string();
  if (!mkdtemp(folder.data()) || folder.size() + 2 > sizeof id->internal) return ncclSystemError;
  std::memset(id->internal, 7, sizeof id->internal);
  std::memcpy(id->internal, folder.c_str(), folder.size() + 1);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  check_outlives_its_caller(made);
  if (config->blocking != 0 || id.internal[sizeof id.internal - 1] != 7) return ncclInvalidArgument;
  ncclComm* comm = *made = new ncclComm;
  comm->path = std::string(id.internal) + "/world.";
  comm->rank = rank, comm->size = ranks;
  std::thread([comm] {
    exchange(comm, "start", "", 0);
    comm->settled = true;
  }).detach();
  return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t parent, int colour, int key, ncclComm_t* made, ncclConfig_t*) {
  check_outlives_its_caller(made);
  check_settled(parent);
  parent->settled = false;
  const std::string meeting = "split" + std::to_string(parent->splits++);
  std::thread([=] {
    const int mine[] = {colour, key, parent->rank};
    const std::vector<Bytes> all = exchange(parent, meeting, mine, sizeof mine);
    if (all.empty()) {
      parent->settled = true;
      return;
    }
    std::vector<std::pair<int, int>> members;  // key and rank in the parent
    for (const Bytes& bytes : all) {
      int theirs[3];
      std::memcpy(theirs, bytes.data(), sizeof theirs);
      if (theirs[0] == colour) members.emplace_back(theirs[1], theirs[2]);
    }
    std::sort(members.begin(), members.end());
    auto* comm = new ncclComm;
    comm->path = parent->path + meeting + "." + std::to_string(colour) + ".";
    comm->rank =
        static_cast<int>(std::find(members.begin(), members.end(), std::pair(key, parent->rank)) - members.begin());
    comm->size = static_cast<int>(members.size());
    *made = comm;
    parent->settled = true;
    std::this_thread::sleep_for(kLate);
    comm->settled = true;
  }).detach();
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = comm->settled ? ncclSuccess : ncclInProgress;
  if (!comm->aborted && std::filesystem::exists(comm->path + "aborted")) *state = ncclRemoteError;
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t comm) { return check_settled(comm), ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const std::filesystem::path path = comm->path;
  if (path.filename() == "world." && all_have_signed(comm, comm->path + "ended"))
    std::filesystem::remove_all(path.parent_path());
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  comm->aborted = true;
  std::ofstream(comm->path + "aborted");  // its peers lose it
  while (!comm->settled) std::this_thread::sleep_for(kPoll);
  return ncclSuccess;
}

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
  return meet(comm, stream, in, count * size_of(type), [=](const std::vector<Bytes>& all) {
    const Bytes result = reduce(all, type, op);
    write_to(out, result.data(), result.size());
  });
}

ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  const std::size_t bytes = comm->rank == root ? count * size_of(type) : 0;
  return meet(comm, stream, in, bytes, [=](const std::vector<Bytes>& all) {
    const Bytes& from = all[static_cast<std::size_t>(root)];
    write_to(out, from.data(), from.size());
  });
}

ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return meet(comm, stream, in, count * size_of(type), [=](const std::vector<Bytes>& all) {
    auto* to = static_cast<char*>(out);
    for (const Bytes& part : all) {
      write_to(to, part.data(), part.size());
      to += part.size();
    }
  });
}

ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                               ncclComm_t comm, cudaStream_t stream) {
  const std::size_t part = count * size_of(type);
  return meet(comm, stream, in, part * static_cast<std::size_t>(comm->size), [=](const std::vector<Bytes>& all) {
    const Bytes result = reduce(all, type, op);
    write_to(out, result.data() + part * static_cast<std::size_t>(comm->rank), part);
  });
}

ncclResult_t ncclSend(const void* in, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return issue(comm, stream, [=] {
    const Bytes bytes = read_from(in, count * size_of(type));
    const std::string file = message_of(comm, comm->rank, peer, comm->sent[peer]++);
    std::ofstream(file + ".part", std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    std::filesystem::rename(file + ".part", file);
  });
}

ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return issue(comm, stream, [=] {
    const std::string file = message_of(comm, peer, comm->rank, comm->received[peer]++);
    for (; !std::filesystem::exists(file); std::this_thread::sleep_for(kPoll))
      if (comm->aborted) return;
    Bytes bytes(count * size_of(type));
    std::ifstream(file, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    std::filesystem::remove(file);
    write_to(out, bytes.data(), bytes.size());
  });
}

}  // extern "C"
