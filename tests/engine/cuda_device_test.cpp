// SPDX-License-Identifier: MIT
//
// What a user is told who asks for a GPU that is not there, in builds with and without CUDA; and where there is one,
// copies to it, and that a CUDA graph gets memory beside its stream while its workspace stays.
#include "engine/device/device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <thread>

#include "engine/backend/backend.h"
#include "engine/core/graph_pool.h"
#include "engine/core/memory.h"
#include "engine/core/tensor.h"
#include "engine/device/graph.h"
#include "engine/device/upload.h"
#include "engine/kernels/elementwise.h"
#include "tests/ptx_gpu.h"

namespace ab {
namespace {

/// Runs `body`, which must throw Error(communication), and returns its message.
template <class F> std::string device_error(F&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::communication);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(CudaDevice, SaysWhyThereIsNone) {
  if (cuda_device_count() > 0) GTEST_SKIP() << "this machine has a GPU";
  const std::string reason = cuda_unavailable_reason();
  EXPECT_FALSE(reason.empty());
  const Device gpu{DeviceKind::cuda, 0};
  EXPECT_EQ(device_error([&] { (void)backend(gpu); }), reason);
  EXPECT_EQ(device_error([&] { Tensor t({4}, DType::float32, gpu); }), reason);
  EXPECT_EQ(device_error([&] { (void)Tensor::zeros({4}).to(gpu); }), reason);
  EXPECT_EQ(device_error([&] { (void)cuda_upload_slot(0, 4); }), reason);
}

TEST(CudaDevice, NamesAnIndexThatIsTooLarge) {
  const int count = cuda_device_count();
  if (count == 0) GTEST_SKIP() << "no GPU: " << cuda_unavailable_reason();
  EXPECT_TRUE(cuda_unavailable_reason().empty());
  const std::string message = device_error([&] { (void)backend({DeviceKind::cuda, count}); });
  EXPECT_NE(message.find(std::to_string(count)), std::string::npos) << message;
  EXPECT_THROW(backend({DeviceKind::cuda, -1}), Error);
}

/// One byte for each block, so that what came of it shows on every byte.
void fill(std::byte* host, std::size_t bytes, int block) { std::fill_n(host, bytes, static_cast<std::byte>(block)); }

bool holds(const Tensor& t, int block) {
  const Tensor host = t.to(Device{});
  const auto values = host.span<std::uint8_t>();
  return std::all_of(values.begin(), values.end(), [&](std::uint8_t v) { return v == block; });
}

/// The bytes that tensors hold on GPU 0.
std::int64_t live_bytes() { return memory({DeviceKind::cuda, 0}).stats().live_bytes; }

TEST(UploadSlot, CopiesAreOrderedWithTheWorkThatReadsThem) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU: " << cuda_unavailable_reason();
  const Device gpu{DeviceKind::cuda, 0};
  constexpr int kBlocks = 40;
  constexpr std::size_t kBytes = 4 << 20, kRead = 4096;  // the end of a block, which is copied last
  const Tensor busy = Tensor::zeros({16 << 20}, DType::uint8, gpu), work = busy.clone();
  std::array slots{cuda_upload_slot(0, kBytes), cuda_upload_slot(0, kBytes)};
  std::vector<Tensor> received;
  for (int block = 0; block < kBlocks; ++block) received.emplace_back(Shape{std::int64_t{kRead}}, DType::uint8, gpu);
  int sent = 0;
  const auto slot_of = [&](int block) -> UploadSlot& { return *slots[static_cast<std::size_t>(block) % 2]; };
  const auto send = [&] {
    fill(slot_of(sent).host(), kBytes, sent);
    slot_of(sent++).start(kBytes);
  };
  for (int block = 0; block < kBlocks; ++block) {
    // One block in four is wanted as soon as it is sent; the others come to a GPU that has work for longer.
    const int turn = block % 4;
    if (turn == 0) synchronize(gpu);
    if (sent == block) send();
    if (turn == 1 || turn == 2) send();
    for (int i = 0; i < turn; ++i) work.copy_from(busy);
    received[static_cast<std::size_t>(block)].copy_from(slot_of(block).acquire().slice(kBytes - kRead, kBytes));
    slot_of(block).release();
  }
  for (int block = 0; block < kBlocks; ++block)
    EXPECT_TRUE(holds(received[static_cast<std::size_t>(block)], block)) << block;
}

TEST(UploadSlot, CanBeDroppedInEveryState) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU: " << cuda_unavailable_reason();
  const std::int64_t before = live_bytes();
  for (int steps = 0; steps <= 3; ++steps) {
    const auto slot = cuda_upload_slot(0, 1 << 20);
    if (steps > 0) fill(slot->host(), 1 << 20, steps);
    if (steps > 1) slot->start(1 << 20);
    if (steps > 2) {
      EXPECT_TRUE(holds(slot->acquire(), steps));
    }
  }
  EXPECT_EQ(live_bytes(), before);
}

TEST(UploadSlot, HasAnOrderOfCalls) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU: " << cuda_unavailable_reason();
  const auto slot = cuda_upload_slot(0, 4);
  EXPECT_THROW(slot->acquire(), Bug) << "nothing is under way";
  fill(slot->host(), 4, 1);
  slot->start(4);
  EXPECT_THROW((void)slot->host(), Bug) << "nobody has seen what is under way";
}

// What was released lies in the driver's pool in pieces that do not fit, some of it still in use.
TEST(CudaMemory, ThePoolIsEmptiedBeforeMemoryRunsOut) {
  if (!on_ptx_gpu()) GTEST_SKIP() << "needs the GPU of tests/ptx";
  const Device gpu{DeviceKind::cuda, 0};
  constexpr std::int64_t kMiB = 1 << 20;
  setenv("PTX_BYTES", std::to_string(64 * kMiB).c_str(), 1);
  const std::int64_t before = live_bytes();
  for (const std::int64_t size : {30 * kMiB, 20 * kMiB, 40 * kMiB}) {
    Tensor released = Tensor::zeros({size}, DType::uint8).to(gpu);  // its copies take a while
    EXPECT_EQ(live_bytes(), before + size);
  }
  const Tensor large = Tensor::zeros({60 * kMiB}, DType::uint8, gpu);
  EXPECT_THROW(Tensor({60 * kMiB}, DType::uint8, gpu), OutOfMemory);
  EXPECT_TRUE(holds(large.slice(0, kMiB), 0)) << "what is in use stays";
  unsetenv("PTX_BYTES");
}

// The GPU of tests/ptx also tells who waits for the whole device.
TEST(CudaMemory, AThreadMayKeepATensorToItsVeryEnd) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU: " << cuda_unavailable_reason();
  const std::int64_t before = live_bytes();
  std::thread([] {
    thread_local Tensor last;
    last = {};  // known to the thread before its context is, so it goes after that
    last = Tensor::zeros({1 << 20}, DType::uint8, {DeviceKind::cuda, 0});
  }).join();
  EXPECT_EQ(live_bytes(), before);
}

TEST(CudaDevice, AGraphSurvivesGrowthOfItsPoolAndOfTheWorkspace) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU: " << cuda_unavailable_reason();
  const Device gpu{DeviceKind::cuda, 0};
  const auto matrix = [&](std::int64_t n, double value) {
    const Tensor m({n, n}, DType::float32, gpu);
    fill(m, value);
    return m;
  };
  const Tensor a = matrix(64, 1), b = matrix(64, 2), c = matrix(64, 0);
  Tensor released = matrix(64, 5);
  backend(gpu).gemm({}, a, b, c);  // its plan
  const auto graph = capture_graph(*GraphPool::create(gpu), [&] {
    backend(gpu).gemm({}, a, add(b, b), c);  // the pool is empty: it grows inside the capture
    released = {};                           // from before the capture: freed after it
  });
  const Tensor large = matrix(1024, 1), product = matrix(1024, 0);
  backend(gpu).gemm({}, large, large, product);  // may need a larger workspace
  c.set_zero();
  graph->launch();
  EXPECT_EQ(c.to_doubles(), std::vector<double>(64 * 64, 64 * 4.0));
}

}  // namespace
}  // namespace ab
