// SPDX-License-Identifier: MIT
//
// A run that does not fit in memory is refused before it starts.
#include "apps/plan/memory_check.h"

#include <unistd.h>

#include <fstream>
#include <limits>

#include "apps/settings/config.h"
#include "data/datasets.h"
#include "data/loader.h"
#include "engine/comm/launcher.h"
#include "engine/core/machine.h"
#include "engine/core/memory.h"
#include "tests/program_test.h"
#include "tests/striped_images.h"

namespace ab {
namespace {

class MemoryCheckTest : public test::ProgramTest {
 protected:
  void write(const std::string& file, const std::string& text) const {
    test::fs::create_directories(test::fs::path(path(file)).parent_path());
    std::ofstream(path(file)) << text;
  }

  /// Whether the program starts at all: a CUDA build has gigabytes of libraries.
  bool loads_within(int kilobytes) const {
    const test::Outcome outcome = run_command(fmt::format("ulimit -v {}; {} --version", kilobytes, test::program()));
    return !test::contains(outcome.err, "error while loading shared libraries");
  }
};

TEST_F(MemoryCheckTest, WhatIsLeftIsTheLeastThatTheMachineAndTheGroupsLeave) {
  const std::string root = path("");
  EXPECT_EQ(available_host_bytes(root), std::numeric_limits<std::int64_t>::max()) << "nobody tells";
  write("proc/meminfo", "MemTotal:  9000 kB\nMemFree:    10 kB\nMemAvailable:   800 kB\n");
  EXPECT_EQ(available_host_bytes(root), 800 * 1024);
  write("proc/self/cgroup", "0::/slurm/job_7\n");
  write("sys/fs/cgroup/slurm/job_7/memory.max", "max\n");
  write("sys/fs/cgroup/slurm/job_7/memory.current", "5000\n");
  EXPECT_EQ(available_host_bytes(root), 800 * 1024) << "a group without a limit";
  write("sys/fs/cgroup/slurm/memory.max", "500000\n");
  write("sys/fs/cgroup/slurm/memory.current", "400000\n");
  EXPECT_EQ(available_host_bytes(root), 100000) << "of the group around it";
  write("sys/fs/cgroup/slurm/memory.stat", "anon 300000\ninactive_file 50000\n");
  EXPECT_EQ(available_host_bytes(root), 150000) << "file cache is given back";
  write("sys/fs/cgroup/slurm/memory.stat", "anon 300000\ninactive_file 50000\nactive_file 7000\n");
  EXPECT_EQ(available_host_bytes(root), 157000);
  write("proc/self/cgroup", "12:cpu,cpuacct:/x\n4:memory:/y\n");
  write("sys/fs/cgroup/memory/y/memory.limit_in_bytes", "70000\n");
  write("sys/fs/cgroup/memory/y/memory.usage_in_bytes", "80000\n");
  EXPECT_EQ(available_host_bytes(root), 0) << "a limit that was lowered";
}

TEST_F(MemoryCheckTest, ARunThatDoesNotFitIsToldSoInOneSentence) {
  TrainConfig config;
  config.model = "resnet20";
  config.dataset = "imagenet";  // enough images for a batch that does not fit
  config.epochs = 1;
  const std::shared_ptr<ImageSet> images = std::make_shared<ImageSet>(test::striped_images(8, 1));
  constexpr std::int64_t kGigabyte = 1'000'000'000;
  config.batch_size = 8;
  EXPECT_NO_THROW(check_memory(config, *images, 3, {3, kGigabyte}, {}));
  const auto refused = [&](std::int64_t batch, std::int64_t available) {
    config.batch_size = batch;
    return test::message_of(ErrorKind::config, [&] { check_memory(config, *images, 3, {3, available}, {}); });
  };
  config.network = "latency=1ms; from 5: latency=2ms";  // of which a plan takes one alone
  const std::string message = refused(4000, kGigabyte), would_fit = "--batch-size ";
  EXPECT_TRUE(test::contains(message, " GB of memory for 3 ranks, ")) << message;
  EXPECT_TRUE(test::contains(message, "1.00 GB are left")) << message;
  EXPECT_TRUE(test::contains(message, "--ignore-memory tries it all the same")) << message;
  config.batch_size = std::stoll(message.substr(message.find(would_fit) + would_fit.size()));
  EXPECT_GT(config.batch_size, 0);
  EXPECT_NO_THROW(check_memory(config, *images, 3, {3, kGigabyte}, {}));
  EXPECT_TRUE(test::contains(refused(8, 9'000'000), "parameters, gradients and optimizer state of 3 ranks need"));
  EXPECT_TRUE(test::contains(refused(8, 25'000'000), "not even a batch of one image would fit"));
  config.ignore_memory = true;
  EXPECT_NO_THROW(check_memory(config, *images, 3, {3, 0}, {}));
}

TEST_F(MemoryCheckTest, ALoadersBatchesCountOnACpuAlone) {
  TrainConfig config;
  config.model = "mlp";
  config.dataset = "cifar10";
  config.steps = 1;
  config.batch_size = 8;
  const std::shared_ptr<ImageSet> images = std::make_shared<ImageSet>(test::striped_images(8, 1));
  const auto least = [&](Device device) {  // memory that is enough
    std::int64_t little = 0, enough = 1'000'000'000;
    while (enough - little > 1) {
      const std::int64_t middle = little + (enough - little) / 2;
      try {
        check_memory(config, *images, 3, {3, middle}, device);
        enough = middle;
      } catch (const Error&) {
        little = middle;
      }
    }
    return enough;
  };
  const std::int64_t batch = config.batch_size * 3 * 32 * 32 * 4;
  EXPECT_EQ(least({}) - least({DeviceKind::cuda, 0}), 3 * (LoaderOptions{}.prefetch + 1) * batch);
}

/// While one lives, nearly nothing is left for this process.
struct NearlyNothingLeft {
  NearlyNothingLeft() { share_host_memory(1'000'000'000); }
  ~NearlyNothingLeft() { share_host_memory(1); }
};

TEST_F(MemoryCheckTest, ADataSetThatDoesNotFitIsNotRead) {
  const std::string folder = small_cifar();
  const NearlyNothingLeft nothing;
  const std::string refusal = test::message_of(ErrorKind::config, [&] { load_cifar10(folder); });
  EXPECT_TRUE(test::contains(refusal, "CIFAR-10: the 40 images of ")) << refusal;
  EXPECT_TRUE(test::contains(refusal, "0 MB are left for each process; raise the limit of memory")) << refusal;
}

// Batch norm has no statistics of one image that has become one pixel, and those of several ranks where they are shared.
TEST_F(MemoryCheckTest, TheSmallestBatchesAreNoError) {
  for (const char* batch : {"--batch-size 2", "--batch-size 3", "--batch-size 1 --ranks 2 --sync-bn world"}) {
    const std::string train = fmt::format(
        "train --model resnet18 --width 0.0625 --dataset cifar10 --data-dir {} --steps 1 --val-samples 2 --overwrite --out {} "
        "{}",
        small_cifar(), path("run"), batch);
    const test::Outcome outcome = run(train);
    EXPECT_EQ(outcome.exit_code, 0) << batch << ": " << outcome.err;
    EXPECT_FALSE(test::contains(outcome.err, "warning")) << outcome.err;
  }
}

#if !defined(AB_SANITIZED)  // which take all addresses

TEST_F(MemoryCheckTest, APlanNeedsNoMemoryOfItsRun) {
  constexpr int kKilobytes = 400'000;
  if (!loads_within(kKilobytes))
    GTEST_SKIP() << "the system cannot load the libraries of this build within such limits";
  const test::Outcome outcome = run_command(
      fmt::format("ulimit -v {}; timeout 60 {} plan --model vit_b_16 --dataset imagenet --batch-size 1024 --ranks 8",
                  kKilobytes, test::program()));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(test::contains(outcome.out, " TB") || test::contains(outcome.out, " GB")) << outcome.out;
}

TEST_F(MemoryCheckTest, ARunWithinTightLimitsEndsInOneSentenceOrTrains) {
  if (!loads_within(300'000)) GTEST_SKIP() << "the system cannot load the libraries of this build within such limits";
  for (const int kilobytes : {200'000, 300'000, 350'000, 400'000, 500'000, 700'000})
    for (const char* threads : {"--threads 1", "--threads 4 --ranks 2"}) {
      const test::Outcome outcome =
          run_command(fmt::format("ulimit -v {}; timeout 60 {} {}", kilobytes, test::program(),
                                  tiny_train("run", fmt::format("--width 0.1 --overwrite {}", threads))));
      SCOPED_TRACE(fmt::format("ulimit -v {} {}: {}", kilobytes, threads, outcome.err));
      EXPECT_TRUE(outcome.exit_code == 0 || outcome.exit_code == 2 || outcome.exit_code == 6) << outcome.exit_code;
      if (outcome.exit_code == 0) continue;
      EXPECT_TRUE(outcome.err.starts_with("abtrain: ") || test::contains(outcome.err, "\nabtrain: "));
      EXPECT_FALSE(test::contains(outcome.err, "std::"));
    }
}

/// A control group with so much memory, and the line of a shell that enters it; empty where none can be made here.
class SmallGroup {
 public:
  explicit SmallGroup(std::int64_t bytes) {
    for (const auto& [root, limit] :
         {std::pair{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, std::pair{"/sys/fs/cgroup", "memory.max"}}) {
      folder_ = fmt::format("{}/abtrain_test_{}", root, ::getpid());
      std::error_code problem;
      if (!test::fs::create_directory(folder_, problem)) continue;
      std::ofstream(folder_ + "/" + limit) << bytes << std::endl;
      std::int64_t now = 0;
      if (std::ifstream(folder_ + "/" + limit) >> now && now > 0 && now <= bytes) return;
      test::fs::remove(folder_, problem);
    }
    folder_.clear();
  }
  ~SmallGroup() {
    if (!folder_.empty()) ::rmdir(folder_.c_str());
  }
  bool is_there() const { return !folder_.empty(); }
  std::string enter() const { return fmt::format("echo $$ >{}/cgroup.procs && exec ", folder_); }

 private:
  std::string folder_;
};

TEST_F(MemoryCheckTest, WhatDoesNotFitInAControlGroupIsRefusedAndNotKilled) {
  if (!loads_within(300'000)) GTEST_SKIP() << "libraries of this build take such a group's memory";
  const std::string full = path("full");
  test::fs::create_directories(full);
  for (const char* name :
       {"data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch"}) {
    std::ofstream(fmt::format("{}/{}.bin", full, name));
    test::fs::resize_file(fmt::format("{}/{}.bin", full, name),
                          10'000 * 3073);  // black aeroplanes, which take no disk
  }
  const auto refused = [&](std::int64_t megabytes, const std::string& data, const std::string& expected) {
    const SmallGroup group(megabytes * 1'000'000);
    if (!group.is_there()) return false;
    const test::Outcome outcome = run_command(fmt::format(
        "bash -c '{} env OMP_NUM_THREADS=1 {} train --model vgg16_bn_cifar --dataset cifar10 --data-dir {} --batch-size 40 "
        "--steps 2 --out {}'",
        group.enter(), test::program(), data, path("run")));
    EXPECT_EQ(outcome.exit_code, 2) << megabytes << " MB: " << outcome.err;
    EXPECT_TRUE(test::contains(outcome.err, expected)) << megabytes << " MB: " << outcome.err;
    return true;
  };
  if (!refused(60, full, "the 50000 images of ")) GTEST_SKIP() << "no control group can be made here";
  refused(150, full, "154 MB of memory");
  refused(230, small_cifar(), " are left");
  refused(300, small_cifar(), "--batch-size ");
  EXPECT_FALSE(test::fs::exists(path("run")));
}

#endif

TEST_F(MemoryCheckTest, RanksOfOneMachineShareItsMemory) {
  run_thread_ranks(3, {.ranks_per_node = 1}, [](Comm& world) {
    const SharedMemory share = shared_memory({}, world);
    EXPECT_EQ(share.ranks, 3) << "whatever nodes the ledger counts";
    EXPECT_GT(share.available, 0);
    EXPECT_EQ(world.ledger().total().calls, 0);
  });
}

TEST_F(MemoryCheckTest, TheProgramRefusesItBeforeItWritesAnything) {
  if (memory({}).available() > 300'000'000'000) GTEST_SKIP() << "it might fit";
  expect_failure(
      fmt::format("train --model resnet20 --dataset cifar10 --data-dir {} --image-size 128 --batch-size 49000 "
                  "--ranks 1 --out {}",
                  small_cifar(), path("run")),
      2, "the run needs about ");
  EXPECT_FALSE(test::fs::exists(path("run")));
}

}  // namespace
}  // namespace ab
