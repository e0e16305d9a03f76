// SPDX-License-Identifier: MIT
//
// main() of tests that run alone as well as under mpirun or bench/run_ranks.sh: of several processes the first one
// reports, the others speak up about failures only.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include <cstdio>
#include <cstdlib>

#include "engine/comm/comm.h"
#include "engine/comm/launcher.h"

namespace {

class FailurePrinter final : public testing::EmptyTestEventListener {
 public:
  explicit FailurePrinter(int rank) : rank_(rank) {}
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed())
      std::fprintf(stderr, "rank %d: %s:%d: %s\n", rank_, result.file_name() ? result.file_name() : "?",
                   result.line_number(), result.message());
  }

 private:
  int rank_;
};

int rank_of_process() {
  if (ab::launched_by_mpi()) return ab::make_mpi_comm()->rank();
  const char* const rank = std::getenv("RANK");
  return rank ? std::atoi(rank) : 0;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const int rank = rank_of_process();
  if (rank > 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailurePrinter(rank));
  }
  const int failed = RUN_ALL_TESTS();
  // A rank that leaves after a failure leaves without MPI_Finalize, and a launcher ends the others: rank 0 prints before.
  if (rank > 0) std::this_thread::sleep_for(std::chrono::seconds(1));
  return failed;
}
