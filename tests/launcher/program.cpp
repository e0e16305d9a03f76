// SPDX-License-Identifier: MIT
//
// What launcher_test starts: prints its process id and arguments, ends with the exit code that the first one says.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

extern "C" int stand_in();

int main(int argc, char** argv) {
  std::printf("%d\n", static_cast<int>(getpid()));
  for (int i = 1; i < argc; ++i) std::printf("[%s]", argv[i]);
  return stand_in() + (argc > 1 ? std::atoi(argv[1]) : 0);
}
