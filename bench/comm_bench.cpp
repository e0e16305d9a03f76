// SPDX-License-Identifier: MIT
//
// Speed of all_reduce by payload: bytes_per_second is payload over time. Alone: worlds of threads. Under
// mpirun: the world of processes; rank 0 reports.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "engine/comm/comm.h"
#include "engine/comm/launcher.h"

namespace {

constexpr std::int64_t kSmallest = 4 << 10, kLargest = 64 << 20;

/// Fixed counts keep the ranks of an MPI world in step; every size moves about as many bytes.
std::int64_t repeats_for(std::int64_t bytes) { return std::clamp<std::int64_t>((256 << 20) / bytes, 3, 500); }

/// Seconds per all_reduce.
double time_all_reduce(ab::Comm& comm, std::int64_t bytes) {
  const ab::Tensor tensor = ab::Tensor::zeros(ab::Shape{bytes / 4});
  comm.all_reduce(tensor, ab::ReduceOp::mean);
  comm.barrier();
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t i = 0; i < repeats_for(bytes); ++i) comm.all_reduce(tensor, ab::ReduceOp::mean);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count() / static_cast<double>(repeats_for(bytes));
}

using World = std::function<void(const std::function<void(ab::Comm&)>&)>;

void add_benchmarks(const std::string& world_name, const World& run) {
  for (std::int64_t bytes = kSmallest; bytes <= kLargest; bytes *= 4) {
    const auto measure = [run, bytes](benchmark::State& state) {
      for (auto _ : state)
        run([&](ab::Comm& comm) {
          const double seconds = time_all_reduce(comm, bytes);
          if (comm.rank() == 0 || ab::launched_by_mpi()) state.SetIterationTime(seconds);
        });
      state.SetBytesProcessed(state.iterations() * bytes);
    };
    benchmark::RegisterBenchmark(fmt::format("all_reduce/{}/{}KiB", world_name, bytes >> 10).c_str(), measure)
        ->UseManualTime()
        ->Iterations(1);
  }
}

/// Ranks other than the first stay silent.
class NoReport final : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>&) override {}
};

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (!ab::launched_by_mpi()) {
    for (const int ranks : {2, 4, 8})
      add_benchmarks(fmt::format("thread{}", ranks),
                     [ranks](const auto& body) { ab::run_thread_ranks(ranks, {}, body); });
    benchmark::RunSpecifiedBenchmarks();
    return 0;
  }
  const std::unique_ptr<ab::Comm> world = ab::make_mpi_comm();
  add_benchmarks(fmt::format("mpi{}", world->size()), [&](const auto& body) { body(*world); });
  NoReport silence;
  if (world->rank() == 0) benchmark::RunSpecifiedBenchmarks();
  else benchmark::RunSpecifiedBenchmarks(&silence);
  return 0;
}
