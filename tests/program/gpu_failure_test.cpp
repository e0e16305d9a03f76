// SPDX-License-Identifier: MIT
//
// What a user is told whose GPU cannot be used, by the program on the GPU of tests/ptx: one sentence, exit
// code 6, and no process that stays.
#include "tests/program_test.h"

namespace ab {
namespace {

class GpuFailureTest : public test::ProgramTest {
 protected:
  std::string on_ptx_gpu(const std::string& environment) const {
    return fmt::format("env {} LD_PRELOAD={}", environment, AB_PTX_GPU);
  }

  void expect_refusal(const std::string& environment, const std::string& sentence) const {
    const test::Outcome outcome = run(tiny_train("run", "--device cuda"), on_ptx_gpu(environment));
    EXPECT_EQ(outcome.exit_code, 6) << outcome.err;
    EXPECT_EQ(outcome.err, "abtrain: " + sentence + "\n");
    EXPECT_FALSE(std::filesystem::exists(path("run"))) << "nothing is written before the GPU is known to be there";
  }
};

TEST_F(GpuFailureTest, NoDriver) {
  expect_refusal("PTX_DRIVER=0", "there is no NVIDIA driver on this machine; install one, or choose the device cpu");
}

TEST_F(GpuFailureTest, DriverTooOld) {
  expect_refusal("PTX_DRIVER=12040", fmt::format("the NVIDIA driver supports CUDA 12.4 but this build needs {}; "
                                                 "update the driver",
                                                 AB_CUDA_VERSION));
}

TEST_F(GpuFailureTest, NoDevice) {
  expect_refusal("PTX_DEVICES=0",
                 "the driver sees no GPU; check nvidia-smi and CUDA_VISIBLE_DEVICES, or choose the device cpu");
}

TEST_F(GpuFailureTest, DeviceThatIsNotThere) {
  const test::Outcome outcome = run(tiny_train("run", "--device cuda:2"), on_ptx_gpu("PTX_DEVICES=2"));
  EXPECT_EQ(outcome.exit_code, 6);
  EXPECT_EQ(outcome.err, "abtrain: there is no GPU 2: this process sees 2, numbered from 0\n");
}

TEST_F(GpuFailureTest, OutOfMemory) {
  const test::Outcome outcome =
      run(tiny_train("run", "--device cuda --ranks 2 --ignore-memory"), on_ptx_gpu("PTX_BYTES=1000"));
  EXPECT_EQ(outcome.exit_code, 6);
  EXPECT_TRUE(outcome.err.starts_with("abtrain: GPU 0 is out of memory: ")) << outcome.err;
  EXPECT_TRUE(outcome.err.ends_with("lower the batch size or the number of ranks on this GPU\n")) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
}

TEST_F(GpuFailureTest, ARunThatDoesNotFitIsRefused) {
  const test::Outcome outcome = run(tiny_train("run", "--device cuda --ranks 2"), on_ptx_gpu("PTX_BYTES=1000"));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_TRUE(outcome.err.starts_with("abtrain: parameters, gradients and optimizer state of 2 ranks need "))
      << outcome.err;
}

// As where its libraries come from two installations. Ranks are threads here: both fail, one speaks.
TEST_F(GpuFailureTest, CudnnDoesNotStart) {
  const std::string train = fmt::format(
      "train --model resnet20 --width 0.25 --dataset cifar10 --data-dir {} --device "
      "cuda --ranks 2 --batch-size 4 --steps 1 --out {}",
      small_cifar(), path("run"));
  const test::Outcome outcome = run(train, "timeout 60 " + on_ptx_gpu("PTX_CUDNN=0"));
  EXPECT_EQ(outcome.exit_code, 6);
  EXPECT_EQ(outcome.err,
            "abtrain: cannot start cuDNN: CUDNN_STATUS_NOT_INITIALIZED; check that all libcudnn_*.so.9 lie in one "
            "folder on LD_LIBRARY_PATH and that the GPU has free memory\n");
}

// Both have what NCCL needs to introduce them, and rank 1 no room for the model.
TEST_F(GpuFailureTest, OutOfMemoryInOneOfTwoProcesses) {
  const std::string launcher = fmt::format(
      "timeout 60 {}/bench/run_ranks.sh 2 {} sh -c '[ $RANK = 0 ] || export PTX_BYTES=1000; "
      "exec \"$@\" --rendezvous \"$AB_RENDEZVOUS\"' sh",
      AB_SOURCE_DIR, on_ptx_gpu(""));
  const test::Outcome outcome = run(tiny_train("run", "--device cuda --ignore-memory"), launcher);
  EXPECT_EQ(outcome.exit_code, 6) << outcome.err;
  EXPECT_TRUE(test::contains(outcome.err, "abtrain: rank 1: GPU 0 is out of memory: ")) << outcome.err;
  EXPECT_TRUE(test::contains(outcome.err, "abtrain: rank 1 failed: ")) << outcome.err;
}

// After an illegal access every call fails, those that free what a rank holds too.
TEST_F(GpuFailureTest, AnErrorThatStaysInOneOfTwoProcesses) {
  const std::string launcher = fmt::format(
      "timeout 60 {}/bench/run_ranks.sh 2 {} sh -c '[ $RANK = 0 ] || export PTX_FAULT=2; "
      "exec \"$@\" --rendezvous \"$AB_RENDEZVOUS\"' sh",
      AB_SOURCE_DIR, on_ptx_gpu(""));
  const test::Outcome outcome = run(tiny_train("run", "--device cuda"), launcher);
  EXPECT_EQ(outcome.exit_code, 6) << outcome.err;
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 2) << outcome.err;
  for (const char* rank : {"rank 1: ", "rank 1 failed: "}) {
    const std::string sentence =
        fmt::format("abtrain: {}the GPU reported an error: CUDA: cudaErrorIllegalAddress (", rank);
    EXPECT_TRUE(test::contains(outcome.err, sentence)) << outcome.err;
  }
}

}  // namespace
}  // namespace ab
