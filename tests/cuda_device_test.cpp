// SPDX-License-Identifier: MIT
//
// What a user is told who asks for a GPU that is not there, in builds with and without CUDA.
#include "engine/backend/cuda/device.h"

#include <gtest/gtest.h>

#include "engine/backend/backend.h"
#include "engine/core/tensor.h"

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

}  // namespace
}  // namespace ab
