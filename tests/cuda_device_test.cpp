// SPDX-License-Identifier: MIT
//
// What a user is told who asks for a GPU that is not there, in builds with and without CUDA; and where there is one,
// that a CUDA graph gets memory beside its stream, and its workspace stays.
#include "engine/backend/cuda/device.h"

#include <gtest/gtest.h>

#include "engine/backend/backend.h"
#include "engine/backend/graph.h"
#include "engine/core/graph_pool.h"
#include "engine/core/tensor.h"
#include "engine/kernels/elementwise.h"

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
}

TEST(CudaDevice, NamesAnIndexThatIsTooLarge) {
  const int count = cuda_device_count();
  if (count == 0) GTEST_SKIP() << "no GPU: " << cuda_unavailable_reason();
  EXPECT_TRUE(cuda_unavailable_reason().empty());
  const std::string message = device_error([&] { (void)backend({DeviceKind::cuda, count}); });
  EXPECT_NE(message.find(std::to_string(count)), std::string::npos) << message;
  EXPECT_THROW(backend({DeviceKind::cuda, -1}), Error);
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
  const auto pool = GraphPool::create(gpu);
  std::unique_ptr<Graph> graph;
  {
    const GraphPool::Scope scope(*pool);
    graph = capture_graph(gpu, [&] {
      backend(gpu).gemm({}, a, add(b, b), c);  // the pool is empty: it grows inside the capture
      released = {};                           // from before the capture: freed after it
    });
  }
  const Tensor large = matrix(1024, 1), product = matrix(1024, 0);
  backend(gpu).gemm({}, large, large, product);  // may need a larger workspace
  c.set_zero();
  graph->launch();
  EXPECT_EQ(c.to_doubles(), std::vector<double>(64 * 64, 64 * 4.0));
}

}  // namespace
}  // namespace ab
