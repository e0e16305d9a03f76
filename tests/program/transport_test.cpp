// SPDX-License-Identifier: MIT
//
// Ranks as threads and ranks as processes are the same training: schedule, ranks r, ledger and losses.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "apps/train/run_folder.h"
#include "apps/train/stop_request.h"
#include "engine/comm/comm.h"
#include "engine/core/machine.h"
#include "engine/device/device.h"
#include "tests/program_test.h"

namespace ab {
namespace {

namespace fs = std::filesystem;

class TransportTest : public test::ProgramTest {
 protected:
  static std::string launcher(int ranks) {
    return fmt::format("{} --oversubscribe --allow-run-as-root -np {}", AB_MPIEXEC, ranks);
  }

  /// Through all phases, ending among factors.
  static constexpr const char* kGroups =
      "ab --ab.first-split 2 --ab.cycle-steps 4 --ab.full-rank-steps 1 --ab.ratio 0.25";

  /// So many steps that a signal comes between them, with few splits.
  static constexpr const char* kLong =
      "ab --ab.first-split 2 --ab.cycle-steps 40 --ab.full-rank-steps 1 --ab.ratio 0.25 --width 0.1 --steps 2000";

  std::string train(const std::string& out, const std::string& more, const std::string& method = kGroups) const {
    return fmt::format(
        "train --model mlp --dataset cifar10 --data-dir {} --batch-size 2 --lr 0.01 --log-every 1 --method {} --out {} "
        "{}",
        small_cifar(), method, path(out), more);
  }

  /// Which differs by rounding alone.
  void expect_same_training(const std::string& one, const std::string& other) const {
    const ab::Run a = read_run(path(one)), b = read_run(path(other));
    EXPECT_EQ(a.summary.world_size, b.summary.world_size);
    EXPECT_EQ(a.summary.steps_by_phase, b.summary.steps_by_phase);
    EXPECT_EQ(a.summary.per_layer, b.summary.per_layer);
    EXPECT_EQ(a.summary.wire_bytes_by_rank, b.summary.wire_bytes_by_rank);
    EXPECT_EQ(a.summary.wire_bytes_per_rank_by_phase, b.summary.wire_bytes_per_rank_by_phase);
    EXPECT_NEAR(a.summary.final_val_loss, b.summary.final_val_loss, 1e-5);
    ASSERT_EQ(a.steps.size(), b.steps.size());
    for (std::size_t i = 0; i < a.steps.size(); ++i) {
      EXPECT_EQ(a.steps[i].phase, b.steps[i].phase);
      EXPECT_EQ(a.steps[i].wire_bytes, b.steps[i].wire_bytes);
      EXPECT_NEAR(a.steps[i].loss, b.steps[i].loss, 1e-5);
    }
    ASSERT_EQ(a.splits.size(), b.splits.size());
    for (std::size_t i = 0; i < a.splits.size(); ++i) EXPECT_EQ(a.splits[i].layers, b.splits[i].layers);
  }

  void expect_same_run(const std::string& a, const std::string& b) const {
    const ab::Run whole = read_run(path(a)), other = read_run(path(b));
    ASSERT_EQ(whole.steps.size(), other.steps.size());
    for (std::size_t i = 0; i < whole.steps.size(); ++i) ASSERT_EQ(whole.steps[i].loss, other.steps[i].loss) << i;
    EXPECT_EQ(read_file(path(a) + "/model.safetensors", ErrorKind::data),
              read_file(path(b) + "/model.safetensors", ErrorKind::data));
  }
};

TEST_F(TransportTest, ThreadsAndProcessesTrainAlike) {
  const test::Outcome threads = run(train("threads", "--steps 9 --ranks 4"));
  ASSERT_EQ(threads.exit_code, 0) << threads.err;
  const test::Outcome processes = run(train("processes", "--steps 9"), launcher(4));
  ASSERT_EQ(processes.exit_code, 0) << processes.err;

  expect_same_training("threads", "processes");
  EXPECT_EQ(read_run(path("threads")).summary.world_size, 4);
}

// Each process has a GPU of its own, and they meet over NCCL.
TEST_F(TransportTest, ProcessesOnGpusTrainAsThreadsOfACpuDo) {
  if (cuda_device_count() < 2) GTEST_SKIP() << "needs two GPUs";
  const std::string launcher = fmt::format(
      "timeout 200 {}/bench/run_ranks.sh 2 sh -c 'exec \"$@\" --rendezvous \"$AB_RENDEZVOUS\"' sh", AB_SOURCE_DIR);
  const std::string flags = "--steps 9 --width 0.25 --image-size 8 --overwrite --device ";
  for (const char* method : {kGroups, "dense"}) {
    SCOPED_TRACE(method);
    const test::Outcome threads = run(train("threads", flags + "cpu --ranks 2", method));
    ASSERT_EQ(threads.exit_code, 0) << threads.err;
    const test::Outcome processes = run(train("processes", flags + "cuda", method), launcher);
    ASSERT_EQ(processes.exit_code, 0) << processes.err;
    expect_same_training("threads", "processes");
  }
}

// mpirun binds a rank to one core when nobody asks, and then it has the cores of mpirun; a binding that was asked for stays.
TEST_F(TransportTest, RanksHaveTheCoresOfTheirMasks) {
  const std::size_t cores = available_cores().mask.size();
  if (cores < 2 || !available_cores().quotas.empty()) GTEST_SKIP() << "one core, or a part of some";
  const auto says = [&](const std::string& binding) {
    const test::Outcome outcome =
        run(train("run", "--steps 3 --overwrite"),
            fmt::format("env -u OMP_NUM_THREADS {} --allow-run-as-root -np 1 {}", AB_MPIEXEC, binding));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.out;
  };
  EXPECT_TRUE(test::contains(says(""), fmt::format("\n{} threads a rank", cores)));
  EXPECT_TRUE(test::contains(says("--bind-to core"), "\n1 thread a rank, on 1 of "));
}

TEST_F(TransportTest, ProcessesStopAtOneStepAndResume) {
  const std::string whole_run = train("whole", "", kLong);
  ASSERT_EQ(run(whole_run, launcher(2)).exit_code, 0);
  // mpirun passes SIGUSR1 on to the ranks, which hear it at different steps; copies come while they compute and save.
  const std::string signalled = fmt::format(
      "sh -c '\"$@\" & p=$!; while ! test -s {}/metrics.jsonl; do sleep 0.01; done; "
      "for i in 1 2 3 4 5 6 7 8 9 10; do kill -USR1 $p; done; wait $p' sh {}",
      path("part"), launcher(2));
  const test::Outcome stopped = run(train("part", "", kLong), signalled);
  ASSERT_EQ(stopped.exit_code, kStoppedExitCode) << stopped.err;
  const test::Outcome other_world = run("train --resume " + path("part"), launcher(3));
  EXPECT_EQ(other_world.exit_code, 4) << other_world.err;
  EXPECT_TRUE(test::contains(other_world.err, "has 2 ranks, and the launcher started 3: start 2")) << other_world.err;
  fs::copy(path("part"), path("threads"), fs::copy_options::recursive);
  const test::Outcome resumed = run("train --resume " + path("part"), launcher(2));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  expect_same_run("whole", "part");
  // Without a launcher the same ranks go on as threads.
  const test::Outcome as_threads = run(train("threads", "--resume auto", kLong));
  ASSERT_EQ(as_threads.exit_code, 0) << as_threads.err;
  expect_same_run("whole", "threads");
}

TEST_F(TransportTest, ThreadsThatStoppedGoOnAsProcesses) {
  ASSERT_EQ(run(train("whole", "--ranks 2", kLong)).exit_code, 0);
  const std::string stopped_soon =
      fmt::format("sh -c '\"$@\" & p=$!; while ! test -s {}/metrics.jsonl; do sleep 0.01; done; kill $p; wait $p' sh",
                  path("part"));
  ASSERT_EQ(run(train("part", "--ranks 2", kLong), stopped_soon).exit_code, kStoppedExitCode);
  const test::Outcome resumed = run("train --resume " + path("part"), launcher(2));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  expect_same_run("whole", "part");
}

TEST_F(TransportTest, TheRecordOfARunHasItsRanks) {
  ASSERT_EQ(run(train("run", "--steps 9"), launcher(2)).exit_code, 0);
  const std::string record = path("run") + "/config.toml";
  EXPECT_TRUE(test::contains(read_file(record, ErrorKind::data), "\nranks = 2\n"));
  ASSERT_EQ(run(fmt::format("train --config {} --out {}", record, path("again"))).exit_code, 0);
  expect_same_run("run", "again");
}

TEST_F(TransportTest, ProcessesTakeTheSameBucketsAsThreads) {
  const std::string flags = "--steps 2 --network latency=1us --ranks-per-node 1 --bucket-mb auto ";
  const test::Outcome threads = run(train("threads", flags + "--ranks 2", "dense"));
  const test::Outcome processes = run(train("processes", flags, "dense"), launcher(2));
  ASSERT_EQ(threads.exit_code + processes.exit_code, 0) << threads.err << processes.err;
  const auto size = [&](const char* folder) {
    return resolve_train_config({}, in_folder(path(folder), kConfigFile)).bucket_mb;
  };
  EXPECT_GT(size("threads"), 0);
  EXPECT_EQ(size("processes"), size("threads"));
}

// As earlier releases did, which left the number of processes to the checkpoint.
TEST_F(TransportTest, ARecordWithoutItsProcessesGoesOnByTheCheckpoint) {
  const std::string stopped_soon = fmt::format(
      "sh -c '\"$@\" & p=$!; while ! test -s {}/metrics.jsonl; do sleep 0.01; done; kill -USR1 $p; wait $p' sh {}",
      path("part"), launcher(2));
  ASSERT_EQ(run(train("part", "", kLong), stopped_soon).exit_code, kStoppedExitCode);
  const std::string file = path("part") + "/config.toml";
  std::string record = read_file(file, ErrorKind::data);
  record.replace(record.find("\nranks = 2\n"), 11, "\nranks = 1\n");
  write_file_atomically(file, record);
  const test::Outcome resumed = run("train --resume " + path("part"));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_EQ(read_run(path("part")).summary.world_size, 2);
  EXPECT_TRUE(test::contains(read_file(file, ErrorKind::data), "\nranks = 2\n"));
}

TEST_F(TransportTest, ARunFolderThatRanksDoNotShareIsRefusedAtTheStart) {
  const std::string own_folders =
      fmt::format("{} sh -c 'mkdir -p {}/$OMPI_COMM_WORLD_RANK && cd {}/$OMPI_COMM_WORLD_RANK && exec \"$@\"' sh",
                  launcher(2), folder_, folder_);
  std::string command = train("run", "--steps 300 --timeout-s 2");
  const std::string whole_path = "--out " + path("run");
  command.replace(command.find(whole_path), whole_path.size(), "--out run");
  const test::Outcome outcome = run(command, own_folders);
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_TRUE(test::contains(outcome.err, "abtrain: rank 1 does not see the run folder run"));
  EXPECT_FALSE(std::filesystem::exists(path("0/run/model.safetensors")));
}

TEST_F(TransportTest, RanksWithOtherSettingsOrOtherImagesAreNamed) {
  // Of an argument that begins with RANK each rank gets the rest and its number.
  const std::string by_rank = launcher(2) +
                              " sh -c 'for a; do shift; case $a in RANK*) a=${a#RANK}$OMPI_COMM_WORLD_RANK;; esac; "
                              "set -- \"$@\" \"$a\"; done; exec \"$@\"' sh";
  const test::Outcome settings = run(train("x", "--steps 9 --seed RANK1"), by_rank);
  EXPECT_EQ(settings.exit_code, 2) << settings.err;
  EXPECT_TRUE(test::contains(settings.err, "abtrain: rank(s) 1 started with settings that differ from rank 0's"));
  EXPECT_TRUE(test::contains(settings.err, "(rank 0: seed = 10; rank 1: seed = 11)")) << settings.err;

  // As --precision auto is on two kinds of processors.
  const test::Outcome precisions = run(fmt::format("{} : -np 1 {} {}", train("x", "--steps 9 --precision bf16"),
                                                   test::program(), train("x", "--steps 9 --precision fp32")),
                                       launcher(1));
  EXPECT_EQ(precisions.exit_code, 2) << precisions.err;
  EXPECT_TRUE(test::contains(precisions.err, "another type on another processor, so name one")) << precisions.err;

  std::string images = train("x", "--steps 9");
  images.replace(images.find(path("data")), path("data").size(), "RANK" + path("data_"));
  std::filesystem::copy(path("data"), path("data_0"));
  std::filesystem::copy(path("data"), path("data_1"));
  std::string records = read_file(path("data_1/test_batch.bin"), ErrorKind::data);
  records[3072] = static_cast<char>(~records[3072]);
  write_file_atomically(path("data_1/test_batch.bin"), records);
  const test::Outcome other = run(images, by_rank);
  EXPECT_EQ(other.exit_code, 3) << other.err;
  EXPECT_TRUE(test::contains(other.err, "rank(s) 1 found other images than rank 0"));
  EXPECT_FALSE(std::filesystem::exists(path("x")));
}

TEST_F(TransportTest, AFailingJobEndsWithTheCodeOfItsError) {
  const test::Outcome no_data =
      run("train --dataset cifar10 --data-dir /nowhere --steps 2 --out " + path("x"), launcher(3));
  EXPECT_EQ(no_data.exit_code, 3) << no_data.err;
  EXPECT_TRUE(test::contains(no_data.err, "there is no folder '/nowhere'"));
  const test::Outcome groups = run(train("y", "--steps 9 --ab.group-size 4"), launcher(3));
  EXPECT_EQ(groups.exit_code, 2) << groups.err;
  EXPECT_FALSE(std::filesystem::exists(path("y")));
}

#ifndef AB_SANITIZED  // which mind threads after a fork
// As by a batch system, for longer than ranks wait for each other, while one of them does.
TEST(SuspendedRanks, GoOn) {
  using namespace std::chrono_literals;
  const pid_t ranks = ::fork();
  if (ranks == 0) {
    try {
      run_thread_ranks(2, {.timeout = 3s}, [](Comm& comm) {
        for (int nap = 0; comm.rank() == 1 && nap < 13; ++nap) std::this_thread::sleep_for(100ms);
        comm.barrier();
      });
    } catch (...) {
      ::_exit(1);
    }
    ::_exit(0);
  }
  std::this_thread::sleep_for(800ms);
  ::kill(ranks, SIGSTOP);
  std::this_thread::sleep_for(4s);
  ::kill(ranks, SIGCONT);
  int status = 0;
  ::waitpid(ranks, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}
#endif

}  // namespace
}  // namespace ab
