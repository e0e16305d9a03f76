// SPDX-License-Identifier: MIT
//
// How many threads a rank has: affinity masks, CPU quotas, and who shares them.
#include "engine/core/threads.h"

#include <omp.h>
#include <sched.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <thread>

#include "apps/train/energy.h"
#include "apps/train/run_transport.h"
#include "engine/comm/comm.h"
#include "engine/core/machine.h"
#include "tests/program_test.h"

namespace ab {
namespace {

using test::contains;
using Mask = std::vector<int>;

class ThreadsTest : public test::ProgramTest {
 protected:
  void write(const std::string& file, const std::string& text) const {
    test::fs::create_directories(test::fs::path(path(file)).parent_path());
    std::ofstream(path(file)) << text;
  }
};

/// The calling thread's.
void run_on(const Mask& cores) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(static_cast<std::size_t>(core), &set);
  ASSERT_EQ(sched_setaffinity(0, sizeof set, &set), 0);
}

TEST_F(ThreadsTest, CoresAreDividedWhereMasksOverlapAndNowhereElse) {
  const Mask eight{0, 1, 2, 3, 4, 5, 6, 7}, next{8, 9, 10, 11, 12, 13, 14, 15}, two{6, 7};
  EXPECT_EQ(cores_of_first({{eight}}), 8);
  EXPECT_EQ(cores_of_first({{eight}, {next}}), 8) << "srun --cpus-per-task 8";
  EXPECT_EQ(cores_of_first({{eight}, {eight}}), 4);
  EXPECT_EQ(cores_of_first({{eight}, {two}}), 7);
  EXPECT_EQ(cores_of_first({{two}, {eight}, {eight}, {next}}), 2.0 / 3);
}

TEST_F(ThreadsTest, RanksThatShareAllCoresHaveWholeParts) {
  if (std::getenv("OMP_NUM_THREADS")) GTEST_SKIP() << "which says how many threads there are";
  for (const auto& [ranks, cores] : {std::pair{3, 6}, {12, 24}, {48, 96}}) {
    Mask all(static_cast<std::size_t>(cores));
    std::iota(all.begin(), all.end(), 0);
    const double own = cores_of_first(std::vector<AvailableCores>(static_cast<std::size_t>(ranks), {all}));
    std::thread([own] {
      set_compute_threads_within(0, own);
      EXPECT_EQ(compute_threads(), 2);
    }).join();
  }
}

TEST_F(ThreadsTest, TheEnergyOfAllProcessorsIsAddedUp) {
  const std::string zones = path("powercap");
  const auto zone = [&](const std::string& name, const std::string& what, const std::string& microjoules) {
    write("powercap/" + name + "/name", what + "\n");
    write("powercap/" + name + "/max_energy_range_uj", "10000000\n");
    if (!microjoules.empty()) write("powercap/" + name + "/energy_uj", microjoules + "\n");
  };
  EXPECT_EQ(EnergyMeter(zones).source(), "none");
  EXPECT_TRUE(std::isnan(EnergyMeter(zones).look()));
  zone("intel-rapl:0", "package-0", "1000000");
  zone("intel-rapl:1", "package-1", "9000000");
  zone("intel-rapl:2", "psys", "5000000");
  zone("intel-rapl:0:0", "core", "5000000");
  EnergyMeter meter(zones);
  EXPECT_EQ(meter.source(), "powercap");
  zone("intel-rapl:0", "package-0", "3000000");
  zone("intel-rapl:1", "package-1", "1500000");  // began anew at ten joules
  zone("intel-rapl:2", "psys", "9000000");
  EXPECT_DOUBLE_EQ(meter.look(), 2 + 2.5);
  zone("intel-rapl:0", "package-0", "3500000");
  EXPECT_DOUBLE_EQ(meter.look(), 5);
  test::fs::remove(path("powercap/intel-rapl:1/energy_uj"));
  EXPECT_TRUE(std::isnan(meter.look()));
  EXPECT_EQ(meter.source(), "refused");
  EXPECT_EQ(EnergyMeter(zones).source(), "refused");
}

TEST_F(ThreadsTest, TheEnergyOfAGpuIsWhatItsLibraryCounts) {
  EXPECT_EQ(EnergyMeter::of_gpu("0000:3B:00.0", "no_such_library.so").source(), "none");
  EXPECT_EQ(EnergyMeter::of_gpu("0000:4B:00.0", AB_FAKE_NVML).source(), "none");
  EnergyMeter meter = EnergyMeter::of_gpu("0000:3B:00.0", AB_FAKE_NVML);
  EXPECT_EQ(meter.source(), "nvml");
  EXPECT_DOUBLE_EQ(meter.look(), 2.5);
  EXPECT_DOUBLE_EQ(meter.look(), 5);
  EXPECT_TRUE(std::isnan(meter.look()));
  EXPECT_EQ(meter.source(), "refused");
}

TEST_F(ThreadsTest, AQuotaIsDividedAmongItsGroup) {
  const Mask eight{0, 1, 2, 3, 4, 5, 6, 7};
  const AvailableCores::Quota job{"/job", 6}, task{"/job/task1", 2.5};
  EXPECT_EQ(cores_of_first({{eight, {job}}}), 6);
  EXPECT_EQ(cores_of_first({{eight, {job}}, {eight, {job}}, {eight, {job}}}), 2);
  EXPECT_EQ(cores_of_first({{eight, {task, job}}, {eight, {job}}}), 2.5) << "the least on the path";
  EXPECT_EQ(cores_of_first({{eight, {task, job}}, {eight, {job}}, {eight, {job}}}), 2);
  const AvailableCores back = cores_from_text(to_text({eight, {{"/a job/of mine", 1.5}, job}}));
  EXPECT_EQ(back.mask, eight);
  ASSERT_EQ(back.quotas.size(), 2u);
  EXPECT_EQ(back.quotas[0].group, "/a job/of mine");
  EXPECT_EQ(back.quotas[0].cores, 1.5);
  EXPECT_EQ(back.quotas[1].group, "/job");
}

TEST_F(ThreadsTest, QuotasAreReadOfAllGroupsAround) {
  const std::string root = path("");
  EXPECT_TRUE(available_cores(root).quotas.empty());
  EXPECT_FALSE(available_cores(root).mask.empty());
  write("proc/self/cgroup", "0::/slurm/job_7\n");
  write("sys/fs/cgroup/slurm/job_7/cpu.max", "max 100000\n");
  write("sys/fs/cgroup/slurm/cpu.max", "150000 100000\n");
  ASSERT_EQ(available_cores(root).quotas.size(), 1u);
  EXPECT_EQ(available_cores(root).quotas[0].cores, 1.5);
  write("proc/self/cgroup", "4:cpu,cpuacct:/y\n0::/\n");
  write("sys/fs/cgroup/cpu/y/cpu.cfs_quota_us", "300000\n");
  write("sys/fs/cgroup/cpu/y/cpu.cfs_period_us", "100000\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  ASSERT_EQ(available_cores(root).quotas.size(), 1u);
  EXPECT_EQ(available_cores(root).quotas[0].cores, 3);
}

TEST_F(ThreadsTest, RanksTellEachOtherTheirMasksOnce) {
  const Mask all = available_cores().mask;
  if (all.size() < 2) GTEST_SKIP() << "one core";
  const Mask one{all[0]}, both{all[0], all[1]};
  const auto cores_of = [](const Mask& of_first, const Mask& of_second) {
    std::vector<double> cores(2);
    run_thread_ranks(2, {.ranks_per_node = 1}, [&](Comm& world) {
      run_on(world.rank() == 0 ? of_first : of_second);
      set_compute_threads(0, world);
      cores[static_cast<std::size_t>(world.rank())] = compute_cores();
      EXPECT_EQ(world.ledger().total().calls, 0);
    });
    return cores;
  };
  EXPECT_EQ(cores_of(one, Mask{all[1]}), (std::vector<double>{1, 1})) << "each has its own";
  EXPECT_EQ(cores_of(both, both), (std::vector<double>{1, 1}));
  EXPECT_EQ(cores_of(one, both), (std::vector<double>{0.5, 0.5})) << "all compute alike, as the one that has least";
}

TEST_F(ThreadsTest, AMaskIsTheNumberOfThreads) {
  const Mask all = available_cores().mask;
  std::thread([&] {
    run_on({all[0]});
    set_compute_threads(0);
    if (!std::getenv("OMP_NUM_THREADS")) {
      EXPECT_EQ(compute_threads(), 1);
    }
    set_compute_threads(3);
    EXPECT_EQ(compute_threads(), 3) << "as given";
    start_compute_threads();
    int team = 0;
#pragma omp parallel
#pragma omp single
    team = omp_get_num_threads();
    EXPECT_EQ(team, 3);
  }).join();
}

TEST_F(ThreadsTest, ARunSaysHowManyThreadsARankHas) {
  EXPECT_TRUE(contains(run(tiny_train("given", "--ranks 2 --threads 3")).out, "3 threads a rank\n"));
  EXPECT_TRUE(contains(run(tiny_train("environment")).out, "1 thread a rank"));
  const std::string own = "env -u OMP_NUM_THREADS ";
  const Mask all = available_cores().mask;
  const test::Outcome bound = run(tiny_train("bound"), own + fmt::format("taskset -c {}", all[0]));
  EXPECT_TRUE(contains(bound.out, "1 thread a rank")) << bound.out << bound.err;
}

// OpenMP would bind the first thread to one core, and all that it starts.
TEST_F(ThreadsTest, WhatBindsThreadsOfAllRanksToOneCoreIsUndoneAndTold) {
  if (available_cores().mask.size() < 2) GTEST_SKIP() << "one core";
  for (const char* binding : {"OMP_PROC_BIND=true", "OMP_PROC_BIND=close OMP_PLACES=cores", "GOMP_CPU_AFFINITY=0"}) {
    const test::Outcome outcome = run(tiny_train("run", "--overwrite --ranks 2 --threads 1"), binding);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    EXPECT_TRUE(contains(outcome.out, "1 thread a rank")) << outcome.out;
    EXPECT_FALSE(contains(outcome.out, "1 thread a rank, on 1 of")) << binding << ": " << outcome.out;
    EXPECT_TRUE(contains(outcome.err, "is ignored, which would put all ranks and loaders")) << outcome.err;
  }
  EXPECT_FALSE(contains(run(tiny_train("run", "--overwrite"), "OMP_PROC_BIND=false").err, "is ignored"));
}

TEST_F(ThreadsTest, SaysByWhatBfloat16IsMultiplied) {
  const test::Outcome hidden = run(tiny_train("hidden", "--precision bf16"), "ONEDNN_MAX_CPU_ISA=AVX2");
  EXPECT_TRUE(contains(hidden.out, "bf16 is multiplied as float32")) << hidden.out;
  EXPECT_FALSE(contains(run(tiny_train("wide")).out, "bf16"));

  const std::string here = "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16";  // the slow unit of Intel's processors too
  const bool has_unit = contains(run(tiny_train("here", "--precision bf16"), here).out, "bf16 is multiplied by A");
  run(tiny_train("auto", "--precision auto"), here);
  EXPECT_TRUE(contains(read_file(path("auto/config.toml"), ErrorKind::data),
                       has_unit ? "precision = \"bf16\"" : "precision = \"fp32\""));
  const test::Outcome elsewhere = run(tiny_train("auto", "--precision auto --resume auto"), "ONEDNN_MAX_CPU_ISA=AVX2");
  EXPECT_EQ(elsewhere.exit_code, 0) << "a run keeps its precision: " << elsewhere.err;
  run(tiny_train("auto_hidden", "--precision auto"), "ONEDNN_MAX_CPU_ISA=AVX2");
  EXPECT_TRUE(contains(read_file(path("auto_hidden/config.toml"), ErrorKind::data), "precision = \"fp32\""));
}

}  // namespace
}  // namespace ab
