// SPDX-License-Identifier: MIT
//
// For LD_PRELOAD: lets a process fail at a chosen moment of its work, which soak.py asks for in the environment:
//   SOAK_FAULT   "POINT NUMBER ACTION": at the NUMBER-th time that the process comes to POINT
//                points: train, evaluation (an image is opened), split (a matrix is decomposed), checkpoint, result (a
//                file of one is written to disk)
//                actions: kill, term, stop (the signals), stall (for ever), full (from here on checkpoints cannot be written)
//   SOAK_RANK    the rank that fails, where ranks are processes
//   SOAK_MARK    a file that gets the process number when it happens
//   SOAK_COUNTS  a file that gets "RANK POINT NUMBER" for each point when the process ends
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr const char* kPoints[] = {"train", "evaluation", "split", "checkpoint", "result"};
enum Point { train, evaluation, split, checkpoint, result, none };

std::atomic<int> reached[none];
std::atomic<bool> disk_is_full{false};

const char* rank() {
  const char* of_process = std::getenv("OMPI_COMM_WORLD_RANK");
  return of_process ? of_process : "";
}

void append(const char* variable, const char* text) {
  const char* file = std::getenv(variable);
  const int descriptor = file ? open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
  if (descriptor < 0) return;
  (void)syscall(SYS_write, descriptor, text, std::strlen(text));
  close(descriptor);
}

struct Fault {
  char point[32] = "", action[32] = "";
  int number = 0;
  Fault() {
    const char *text = std::getenv("SOAK_FAULT"), *which = std::getenv("SOAK_RANK");
    if (text && (!which || std::strcmp(which, rank()) == 0)) std::sscanf(text, "%31s %d %31s", point, &number, action);
  }
  ~Fault() {
    for (int p = 0; p < none; ++p) {
      char line[96];
      std::snprintf(line, sizeof line, "%s %s %d\n", *rank() ? rank() : "0", kPoints[p], reached[p].load());
      if (reached[p] > 0) append("SOAK_COUNTS", line);
    }
  }
  bool is(const char* name) const { return std::strcmp(action, name) == 0; }
};
Fault fault;

void come_to(Point point) {
  if (point == none || ++reached[point] != fault.number || std::strcmp(fault.point, kPoints[point]) != 0) return;
  char text[32];
  std::snprintf(text, sizeof text, "%d\n", static_cast<int>(getpid()));
  if (fault.is("full")) disk_is_full = true;
  append("SOAK_MARK", text);
  if (fault.is("kill")) kill(getpid(), SIGKILL);
  if (fault.is("term")) kill(getpid(), SIGTERM);
  if (fault.is("stop")) kill(getpid(), SIGSTOP);
  while (fault.is("stall")) pause();
}

Point point_of_file(int descriptor) {
  char link[64], path[PATH_MAX + 1] = "";
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  if (readlink(link, path, PATH_MAX) < 0) return none;
  if (std::strstr(path, "/checkpoints")) return checkpoint;
  return std::strstr(path, "/model.safetensors") || std::strstr(path, "/summary.json") ? result : none;
}

template <class F> F next(const char* name) { return reinterpret_cast<F>(dlsym(RTLD_NEXT, name)); }

}  // namespace

extern "C" {

FILE* fopen64(const char* path, const char* mode) {
  static const auto open = next<FILE* (*)(const char*, const char*)>("fopen64");
  if (std::strstr(path, ".png")) come_to(std::strstr(path, "/val/") ? evaluation : train);
  return open(path, mode);
}

int fsync(int descriptor) {
  static const auto sync = next<int (*)(int)>("fsync");
  const Point point = point_of_file(descriptor);
  come_to(point);
  if (!disk_is_full || point != checkpoint) return sync(descriptor);
  errno = ENOSPC;
  return -1;
}

ssize_t write(int descriptor, const void* data, size_t count) {
  static const auto put = next<ssize_t (*)(int, const void*, size_t)>("write");
  if (!disk_is_full || point_of_file(descriptor) != checkpoint) return put(descriptor, data, count);
  errno = ENOSPC;
  return -1;
}

void dsyevd_(const char* job, const char* part, const int* n, double* a, const int* lda, double* w, double* work,
             const int* work_size, int* iwork, const int* iwork_size, int* info) {
  static const auto decompose = next<void (*)(const char*, const char*, const int*, double*, const int*, double*,
                                              double*, const int*, int*, const int*, int*)>("dsyevd_");
  if (*work_size >= 0) come_to(split);  // and not a question for sizes
  decompose(job, part, n, a, lda, w, work, work_size, iwork, iwork_size, info);
}

}  // extern "C"
