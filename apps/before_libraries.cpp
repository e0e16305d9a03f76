// SPDX-License-Identifier: MIT
//
// Settings that must be made before the libraries of the program start: the linker calls settle() before their constructors.
// - OpenMP would bind the first thread to one core (OMP_PROC_BIND, OMP_PLACES, GOMP_CPU_AFFINITY), and with it all ranks and
//   loaders that are threads: it does not see those words.
// - mpirun binds ranks to one core each unless it is told otherwise; where that leaves cores idle, ranks get those of mpirun.
// - OpenBLAS takes 128 MiB of addresses for each thread that it may ever have, and asks for ever where ulimit does not allow
//   them: it has fewer threads there, or the program ends with a sentence.
// C only: nothing of the C++ library has been set up here, and getenv() has not either.
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <initializer_list>

namespace {

using Words = char**;

constexpr long kBufferBytes = (128L << 20) + (64L << 10);             // of OpenBLAS, a thread
constexpr long kBytesToStart = 16L << 20, kBytesToWork = 256L << 20;  // beside: the least, and enough for a small run
constexpr int kNoMemory = 6;

/// Where NAME=... stands; null where it does not.
char** find(Words environment, const char* name) {
  const size_t length = strlen(name);
  for (char** word = environment; *word; ++word)
    if (strncmp(*word, name, length) == 0 && (*word)[length] == '=') return word;
  return nullptr;
}

const char* value_of(Words environment, const char* name) {
  char** const word = find(environment, name);
  return word ? *word + strlen(name) + 1 : nullptr;
}

bool is_first_rank(Words environment) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "RANK"})
    if (const char* const rank = value_of(environment, name)) return strcmp(rank, "0") == 0;
  return true;
}

void leave_threads_unbound(Words environment, bool speaks) {
  for (const char* name : {"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY"}) {
    char** word = find(environment, name);
    if (!word) continue;
    if (speaks && strcasecmp(*word, "OMP_PROC_BIND=false") != 0)
      dprintf(STDERR_FILENO,
              "warning: %s is ignored, which would put all ranks and loaders of a process on the same cores; bind "
              "processes with taskset, mpirun --bind-to or srun --cpu-bind\n",
              name);
    for (; *word; ++word) word[0] = word[1];
  }
}

void widen_mask_of_mpirun(Words environment) {
  const char* const ranks = value_of(environment, "OMPI_COMM_WORLD_LOCAL_SIZE");
  if (!ranks || !value_of(environment, "OMPI_MCA_orte_bound_at_launch") ||
      value_of(environment, "OMPI_MCA_hwloc_base_binding_policy"))
    return;
  cpu_set_t own, of_mpirun;
  if (sched_getaffinity(0, sizeof own, &own) != 0 || sched_getaffinity(getppid(), sizeof of_mpirun, &of_mpirun) != 0)
    return;
  if (CPU_COUNT(&own) * atoi(ranks) < CPU_COUNT(&of_mpirun)) sched_setaffinity(0, sizeof of_mpirun, &of_mpirun);
}

/// Bytes of addresses that ulimit leaves; -1: it limits nothing.
long addresses_left() {
  long pages[6] = {};
  FILE* const file = fopen("/proc/self/statm", "re");
  if (!file) return -1;
  const int read =
      fscanf(file, "%ld %ld %ld %ld %ld %ld", pages, pages + 1, pages + 2, pages + 3, pages + 4, pages + 5);
  fclose(file);
  if (read != 6) return -1;
  long left = -1;
  const auto count = [&](__rlimit_resource_t resource, long used) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    const long rest = static_cast<long>(limit.rlim_cur) - used * sysconf(_SC_PAGESIZE);
    if (left < 0 || rest < left) left = rest > 0 ? rest : 0;
  };
  count(RLIMIT_AS, pages[0]);
  count(RLIMIT_DATA, pages[5]);
  return left;
}

void fit_openblas(Words arguments, Words environment) {
  const long left = addresses_left();
  if (left < 0) return;
  const char* const asked = value_of(environment, "OMP_NUM_THREADS");
  const int cores = static_cast<int>(sysconf(_SC_NPROCESSORS_CONF)), threads = asked ? atoi(asked) : 0;
  const int now = threads > 0 && threads < cores ? threads : cores;
  const long fit = left > kBytesToWork + kBufferBytes ? (left - kBytesToWork) / kBufferBytes : 1;
  if (left < kBufferBytes + kBytesToStart) {
    dprintf(STDERR_FILENO,
            "abtrain: libraries need %ld MB of addresses to start, and ulimit leaves %ld; raise it (ulimit -v, -d)\n",
            (kBufferBytes + kBytesToStart) / 1000000, left / 1000000);
    _exit(kNoMemory);
  }
  if (now <= fit) return;
  static char words[64], path[4096];
  snprintf(words, sizeof words, "OMP_NUM_THREADS=%ld", fit);
  size_t count = 0;
  while (environment[count]) ++count;
  char** const fewer = static_cast<char**>(alloca((count + 2) * sizeof(char*)));
  size_t kept = 0;
  for (size_t i = 0; i < count; ++i)
    if (strncmp(environment[i], "OMP_NUM_THREADS=", 16) != 0) fewer[kept++] = environment[i];
  fewer[kept++] = words;
  fewer[kept] = nullptr;
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length > 0) execve(path, arguments, fewer);
}

void settle(int, Words arguments, Words environment) {
  fit_openblas(arguments, environment);
  const bool trains = arguments[1] && (strcmp(arguments[1], "train") == 0 || strcmp(arguments[1], "reproduce") == 0);
  leave_threads_unbound(environment, trains && is_first_rank(environment));
  widen_mask_of_mpirun(environment);
}

__attribute__((section(".preinit_array"), used)) void (*const before_libraries)(int, Words, Words) = settle;

}  // namespace
