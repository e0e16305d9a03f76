// SPDX-License-Identifier: MIT
//
// A run that does not fit in memory is refused before it starts.
#include "apps/plan/memory_check.h"

#include <fstream>
#include <limits>

#include "apps/config/config.h"
#include "apps/plan/activations.h"
#include "apps/train/build_run.h"
#include "apps/train/train_step.h"
#include "engine/comm/launcher.h"
#include "engine/core/available_memory.h"
#include "engine/core/memory.h"
#include "tests/program_test.h"
#include "tests/striped_images.h"

namespace ab {
namespace {

class MemoryCheckTest : public testing::ProgramTest {
 protected:
  void write(const std::string& file, const std::string& text) const {
    testing::fs::create_directories(testing::fs::path(path(file)).parent_path());
    std::ofstream(path(file)) << text;
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
  write("proc/self/cgroup", "12:cpu,cpuacct:/x\n4:memory:/y\n");
  write("sys/fs/cgroup/memory/y/memory.limit_in_bytes", "70000\n");
  write("sys/fs/cgroup/memory/y/memory.usage_in_bytes", "80000\n");
  EXPECT_EQ(available_host_bytes(root), 0) << "a limit that was lowered";
}

TEST_F(MemoryCheckTest, ActivationsOfABatchAreThoseThatAStepTakes) {
  for (const char* model : {"resnet20", "vgg11_bn_cifar", "vit_ti_16"}) {
    SCOPED_TRACE(model);
    TrainConfig config;
    config.model = model;
    config.image_size = 32;
    config.width = 0.5;
    config.batch_size = 16;
    const ModelSpec spec = make_model_spec(config, 10, 32);
    const std::int64_t of_one = activation_bytes(spec, config, {});
    const std::unique_ptr<Layer> network = make_model(spec);
    TrainStep step(*network, {}, Precision::fp32, 0, GraphUse::off);
    const auto held = [&](std::int64_t count) {
      Batch batch;
      batch.images = Tensor::zeros({count, 32, 32, 3});
      batch.labels = Tensor::zeros({count}, DType::int64);
      memory({}).restart_peak();
      step.run(batch, {});
      return memory({}).stats().peak_bytes;
    };
    held(1);  // makes gradients
    const double of_each = static_cast<double>(held(48) - held(16)) / 32;
    EXPECT_GT(static_cast<double>(of_one), 0.8 * of_each);  // tensors alone
#ifndef __SANITIZE_ADDRESS__                                // which keeps what was freed
    EXPECT_LT(static_cast<double>(of_one), 4 * of_each);
#endif
  }
}

TEST_F(MemoryCheckTest, ARunThatDoesNotFitIsToldSoInOneSentence) {
  TrainConfig config;
  config.model = "resnet20";
  config.dataset = "imagenet";  // enough images for a batch that does not fit
  config.epochs = 1;
  const std::shared_ptr<ImageSet> images = std::make_shared<ImageSet>(testing::striped_images(8, 1));
  constexpr std::int64_t kGigabyte = 1'000'000'000;
  config.batch_size = 8;
  EXPECT_NO_THROW(check_memory(config, *images, 3, {3, kGigabyte}, {}));
  const auto refused = [&](std::int64_t batch, std::int64_t available) {
    config.batch_size = batch;
    return testing::message_of(ErrorKind::config, [&] { check_memory(config, *images, 3, {3, available}, {}); });
  };
  config.network = "latency=1ms; from 5: latency=2ms";  // of which a plan takes one alone
  const std::string message = refused(4000, kGigabyte), would_fit = "--batch-size ";
  EXPECT_TRUE(testing::contains(message, " GB of memory for 3 ranks, ")) << message;
  EXPECT_TRUE(testing::contains(message, "1.00 GB are left")) << message;
  EXPECT_TRUE(testing::contains(message, "--ignore-memory tries it all the same")) << message;
  config.batch_size = std::stoll(message.substr(message.find(would_fit) + would_fit.size())) / 2;  // measured anew
  EXPECT_GT(config.batch_size, 0);
  EXPECT_NO_THROW(check_memory(config, *images, 3, {3, kGigabyte}, {}));
  EXPECT_TRUE(testing::contains(refused(8, 9'000'000), "parameters, gradients and optimizer state of 3 ranks need"));
  EXPECT_TRUE(testing::contains(refused(8, 15'000'000), "not even a batch of one image would fit"));
  config.ignore_memory = true;
  EXPECT_NO_THROW(check_memory(config, *images, 3, {3, 0}, {}));
}

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
  EXPECT_FALSE(testing::fs::exists(path("run")));
}

}  // namespace
}  // namespace ab
