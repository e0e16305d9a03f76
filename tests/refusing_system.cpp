// SPDX-License-Identifier: MIT
//
// For LD_PRELOAD: a system that refuses memory or threads, as REFUSE in the environment says:
//   "new 100 1"     the 100th `new` of the program throws std::bad_alloc, and no other ("new 100 -1": and all after it)
//   "threads 2 0"   there are never more than 2 threads beside the first
// From the beginning of main(), which calls on_exit().
#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

char kind[16] = "";
long first = 0, count = 0;
std::atomic<long> calls{0}, threads{0};
std::atomic<bool> in_main{false};

bool refuses(const char* what) { return in_main && std::strcmp(kind, what) == 0; }

bool memory_is_refused() {
  if (!refuses("new")) return false;
  const long call = ++calls;
  return call >= first && (count < 0 || call < first + count);
}

struct Thread {
  void* (*body)(void*);
  void* argument;
};

void* run_thread(void* thread) {
  const Thread own = *static_cast<Thread*>(thread);
  std::free(thread);
  void* const result = own.body(own.argument);
  --threads;
  return result;
}

template <class F> F next(const char* name) { return reinterpret_cast<F>(dlsym(RTLD_NEXT, name)); }

}  // namespace

void* operator new(std::size_t bytes) {
  void* const block = memory_is_refused() ? nullptr : std::malloc(bytes > 0 ? bytes : 1);
  if (!block) throw std::bad_alloc();
  return block;
}
void operator delete(void* block) noexcept { std::free(block); }
void operator delete(void* block, std::size_t) noexcept { std::free(block); }

extern "C" {

int on_exit(void (*handler)(int, void*), void* argument) {
  static const auto call = next<int (*)(void (*)(int, void*), void*)>("on_exit");
  if (const char* text = std::getenv("REFUSE")) in_main = std::sscanf(text, "%15s %ld %ld", kind, &first, &count) == 3;
  return call(handler, argument);
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) {
  static const auto start = next<int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  if (++threads > first && refuses("threads")) {
    --threads;
    return EAGAIN;
  }
  auto* const own = static_cast<Thread*>(std::malloc(sizeof(Thread)));
  *own = {body, argument};
  const int problem = start(thread, attributes, run_thread, own);
  if (problem != 0) --threads;
  return problem;
}

}  // extern "C"
