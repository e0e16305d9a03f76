// SPDX-License-Identifier: MIT
//
// What kernels of the emulated GPU read and write, counted by the pages that they touch.
#include <gtest/gtest.h>

#include "engine/kernels/elementwise.h"

#ifdef AB_EMULATE_GPU
#include "engine/device/emulated_gpu/kernel_traffic.h"

namespace ab {
namespace {

using emulated_gpu::KernelTraffic;
using emulated_gpu::TouchedBytes;

constexpr std::int64_t kPage = 4096, kPages = 64;
constexpr Device kGpu{DeviceKind::cuda, 0};

Tensor pages() { return Tensor::zeros({kPages * kPage / 4}, DType::float32, kGpu); }

/// Of the one kernel that `work` runs.
TouchedBytes touched_by(const std::function<void()>& work) {
  const KernelTraffic traffic(kGpu.index);
  work();
  EXPECT_EQ(traffic.by_kernel().size(), 1u);
  return traffic.by_kernel().begin()->second;
}

/// Tensors need not begin with a page.
void expect_pages(std::int64_t bytes, std::int64_t tensors) {
  EXPECT_GE(bytes, tensors * kPages * kPage);
  EXPECT_LE(bytes, tensors * (kPages + 1) * kPage);
}

TEST(KernelTraffic, CountsWhatIsReadAndWritten) {
  const Tensor a = pages(), b = pages();
  const TouchedBytes sum = touched_by([&] { add(a, b); });
  EXPECT_EQ(sum.launches, 1);
  expect_pages(sum.read, 2);
  expect_pages(sum.written, 1);
}

TEST(KernelTraffic, CountsWhatIsChangedInPlaceBothWays) {
  const Tensor a = pages();
  const TouchedBytes scaled = touched_by([&] { scale_in_place(a, 2.0); });
  expect_pages(scaled.read, 1);
  expect_pages(scaled.written, 1);
}

TEST(KernelTraffic, CountsWhatIsWrittenAlone) {
  const Tensor a = pages();
  const TouchedBytes filled = touched_by([&] { fill(a, 3.0); });
  EXPECT_EQ(filled.read, 0);
  expect_pages(filled.written, 1);
}

TEST(KernelTraffic, CountsCopiesByTheirSize) {
  const Tensor a = pages(), b = pages();
  const TouchedBytes copied = touched_by([&] { a.copy_from(b); });
  EXPECT_EQ(copied.read, kPages * kPage);
  EXPECT_EQ(copied.written, kPages * kPage);
}

TEST(KernelTraffic, LeavesResultsAndLaterKernelsAlone) {
  const Tensor a = pages(), b = pages();
  fill(b, 2.0);
  touched_by([&] { fill(a, 1.0); });
  EXPECT_EQ(add(a, b).to_doubles(), std::vector<double>(static_cast<std::size_t>(a.numel()), 3.0));
}

}  // namespace
}  // namespace ab
#else
TEST(KernelTraffic, NeedsAnEmulatedGpu) { GTEST_SKIP() << "this build has none"; }
#endif
