// SPDX-License-Identifier: MIT
//
// cuDNN can plan for a GPU that is not there, given a description of it. These tests plan every convolution
// that our networks need for an H200, on any machine: that a plan exists, that it repeats bit for bit and
// that its workspace is bearable. They say nothing about speed, and of results only where there is a GPU.
#include <gtest/gtest.h>

#ifndef AB_HAS_CUDA
TEST(CudnnPlan, EveryConvolutionHasOne) { GTEST_SKIP() << "built without CUDA and cuDNN"; }
#else

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string_view>
#include <vector>

#include "engine/backend/cuda/cudnn_attention.h"
#include "engine/backend/cuda/cudnn_conv.h"
#include "engine/backend/cuda/cudnn_matmul.h"
#include "engine/backend/cuda/thread_libraries.h"
#include "engine/device/device.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/random.h"

namespace ab::cuda {
namespace {

/// NVIDIA's published figures of an H200 SXM, under the names of cuDNN's JSON form of device properties.
constexpr std::string_view kH200 = R"({
  "cudaDeviceId": 0, "deviceName": "NVIDIA H200", "deviceVer": 900, "driverVer": 13000, "isTccDriver": 0,
  "pciDeviceId": 9013, "multiProcessorCount": 132, "smClockRateKHz": 1980000, "supportCoopLaunch": 1,
  "warpSize": 32, "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "maxCtasPerSM": 32,
  "regsPerBlock": 65536, "maxRegistersPerSM": 65536, "maxGridSize": [2147483647, 65535, 65535],
  "maxBlockSize": [1024, 1024, 64], "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448,
  "reservedSharedMemoryPerBlock": 1024, "l2CacheSize": 62914560, "memClockRateKHz": 3201000,
  "totalGlobalMem": 150754820096
})";

/// A device that need not be there.
CudnnDescriptor device_properties_from_json(std::string_view json) {
  CudnnDescriptor properties(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  properties.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, std::span<const char>(json)).finalize();
  return properties;
}

using Specs = std::vector<Conv2dSpec>;

/// A square convolution that keeps the image's size at stride 1.
Conv2dSpec same(std::int64_t batch, std::int64_t size, std::int64_t in, std::int64_t out, std::int64_t kernel,
                std::int64_t stride = 1, std::int64_t groups = 1, std::int64_t dilation = 1) {
  return {batch, size, size, in, out, kernel, kernel, stride, dilation * (kernel / 2), dilation, groups};
}

Specs vgg16() {
  return {same(128, 32, 3, 64, 3),    same(128, 32, 64, 64, 3),  same(128, 16, 64, 128, 3),
          same(128, 16, 128, 128, 3), same(128, 8, 128, 256, 3), same(128, 8, 256, 256, 3),
          same(128, 4, 256, 512, 3),  same(128, 4, 512, 512, 3), same(128, 2, 512, 512, 3)};
}

Specs resnet20() {
  return {same(128, 32, 3, 16, 3),     same(128, 32, 16, 16, 3), same(128, 32, 16, 32, 3, 2),
          same(128, 32, 16, 32, 1, 2), same(128, 16, 32, 32, 3), same(128, 16, 32, 64, 3, 2),
          same(128, 16, 32, 64, 1, 2), same(128, 8, 64, 64, 3)};
}

Specs resnet50() {
  return {same(256, 224, 3, 64, 7, 2),    same(256, 56, 64, 64, 3),       same(256, 56, 128, 128, 3, 2),
          same(256, 28, 128, 128, 3),     same(256, 28, 256, 256, 3, 2),  same(256, 14, 256, 256, 3),
          same(256, 14, 512, 512, 3, 2),  same(256, 7, 512, 512, 3),      same(256, 56, 256, 512, 1, 2),
          same(256, 28, 512, 1024, 1, 2), same(256, 14, 1024, 2048, 1, 2)};
}

/// A factored weight runs as a thin convolution to or from r channels; a rank policy may choose any r.
Specs factored() {
  Specs specs;
  for (const std::int64_t r : {1, 2, 5, 13, 20, 51, 77}) {
    specs.push_back(same(128, 16, 128, r, 3));
    specs.push_back(same(128, 16, r, 128, 3));
    specs.push_back(same(128, 16, r, 128, 1, 2));
    specs.push_back(same(256, 56, 64, r, 3, 2));
    // Spatial factors, of a convolution at stride 1 and of one at stride 2.
    for (const std::int64_t stride : {1, 2}) {
      specs.push_back({128, 16, 16, 128, r, 1, 3, {1, stride}, {0, 1}});
      specs.push_back({128, 16, 16 / stride, r, 128, 3, 1, {stride, 1}, {1, 0}});
    }
  }
  return specs;
}

/// Last batches of an epoch, patches, groups and holes.
Specs others() {
  return {same(1, 32, 3, 64, 3),
          same(17, 8, 256, 256, 3),
          {128, 224, 224, 3, 384, 16, 16, 16},
          {128, 32, 32, 3, 192, 4, 4, 4},
          same(128, 32, 64, 64, 3, 1, 64),
          same(128, 32, 64, 64, 3, 1, 4),
          same(128, 32, 64, 64, 3, 1, 1, 2)};
}

/// What is stored, and whether it may be multiplied as TF32.
constexpr std::pair<DType, bool> kTypes[] = {
    {DType::bfloat16, false}, {DType::float16, false}, {DType::float32, false}, {DType::float32, true}};
constexpr ConvDirection kDirections[] = {ConvDirection::forward, ConvDirection::backward_data,
                                         ConvDirection::backward_weight};

std::string describe_key(const CudnnConvKey& key) {
  const Conv2dSpec& s = key.spec;
  return fmt::format("{} {} batch {} {}×{} channels {}→{} kernel {}×{} stride {} groups {} alignment {}",
                     name_of(key.direction), key.tf32 ? "tf32" : ab::name_of(key.dtype), s.batch, s.height, s.width,
                     s.in_channels, s.out_channels, s.kernel_h, s.kernel_w, s.stride.str(), s.groups, key.alignment);
}

class CudnnPlan : public testing::TestWithParam<Specs> {};

TEST_P(CudnnPlan, EveryConvolutionHasOne) {
  const CudnnDescriptor h200 = device_properties_from_json(kH200);
  for (const Conv2dSpec& spec : GetParam())
    for (const auto& [dtype, tf32] : kTypes)
      for (const ConvDirection direction : kDirections) {
        // Parameters may lie anywhere in a packed buffer, so the least alignment must do as well.
        for (const auto alignment : {std::int64_t{16}, static_cast<std::int64_t>(size_of(dtype))}) {
          const CudnnConvKey key{spec, direction, dtype, alignment, tf32};
          SCOPED_TRACE(describe_key(key));
          ASSERT_FALSE(spec.is_pointwise()) << "these are matrix products and never reach cuDNN";
          try {
            const CudnnConv conv(key, h200);
            EXPECT_TRUE(conv.is_deterministic());
            EXPECT_LE(conv.workspace_bytes(), std::size_t{1} << 30);
          } catch (const Error& error) {
            ADD_FAILURE() << error.what();
          }
        }
      }
}

// A bias, alone or with a ReLU behind it, costs no pass over the result in any type.
TEST_P(CudnnPlan, BiasAndReluAreFused) {
  const CudnnDescriptor h200 = device_properties_from_json(kH200);
  for (const Conv2dSpec& spec : GetParam())
    for (const auto& [dtype, tf32] : kTypes)
      for (const auto alignment : {std::int64_t{16}, static_cast<std::int64_t>(size_of(dtype))})
        for (const Activation activation : {Activation::none, Activation::relu}) {
          const CudnnConvKey key{spec, ConvDirection::forward, dtype, alignment, tf32, true, activation};
          SCOPED_TRACE(describe_key(key));
          const CudnnConv conv(key, h200);
          EXPECT_TRUE(conv.is_fused());
          EXPECT_TRUE(conv.is_deterministic());
        }
}

// --deterministic finds a plan for everything that the networks run.
TEST_P(CudnnPlan, OneRepeatsBitForBit) {
  const CudnnDescriptor h200 = device_properties_from_json(kH200);
  for (const Conv2dSpec& spec : GetParam())
    for (const auto& [dtype, tf32] : kTypes)
      for (const ConvDirection direction : kDirections) {
        CudnnConvKey key{spec, direction, dtype, 16, tf32};
        key.choice = PlanChoice::deterministic;
        SCOPED_TRACE(describe_key(key));
        EXPECT_TRUE(CudnnConv(key, h200).is_deterministic());
      }
}

INSTANTIATE_TEST_SUITE_P(Vgg16, CudnnPlan, testing::Values(vgg16()));
INSTANTIATE_TEST_SUITE_P(ResNet20, CudnnPlan, testing::Values(resnet20()));
INSTANTIATE_TEST_SUITE_P(ResNet50, CudnnPlan, testing::Values(resnet50()));
INSTANTIATE_TEST_SUITE_P(Factored, CudnnPlan, testing::Values(factored()));
INSTANTIATE_TEST_SUITE_P(Others, CudnnPlan, testing::Values(others()));

// Every fifth row of all images, seen as one high image; and of low images all rows. Nothing goes back through them.
TEST(CudnnPlanOfCut, WhatItObservesHasOne) {
  const CudnnDescriptor h200 = device_properties_from_json(kH200);
  for (const Conv2dSpec& spec : Specs{{1, 128 * 16, 16, 128, 3 * 128, 1, 3, {5, 1}, {0, 1}},
                                      {1, 128 * 16, 16, 128, 3 * 128, 1, 3, {5, 2}, {0, 1}},
                                      {1, 256 * 56, 56, 64, 3 * 64, 1, 3, {5, 1}, {0, 1}},
                                      {1, 128 * 2, 2, 512, 3 * 512, 1, 3, 1, {0, 1}}})
    for (const auto& [dtype, tf32] : kTypes)
      for (const auto alignment : {std::int64_t{16}, static_cast<std::int64_t>(size_of(dtype))}) {
        const CudnnConvKey key{spec, ConvDirection::forward, dtype, alignment, tf32};
        SCOPED_TRACE(describe_key(key));
        const CudnnConv conv(key, h200);
        EXPECT_TRUE(conv.is_deterministic());
        EXPECT_LE(conv.workspace_bytes(), std::size_t{1} << 30);
      }
}

TEST(CudnnPlanErrors, ImpossibleShapesAreRefused) {
  const CudnnDescriptor h200 = device_properties_from_json(kH200);
  Conv2dSpec spec = same(8, 16, 6, 64, 3);
  spec.groups = 6;  // 64 output channels do not divide among 6 groups
  for (const ConvDirection direction : kDirections)
    EXPECT_THROW(CudnnConv({spec, direction, DType::float32, 16}, h200), Error) << name_of(direction);
  EXPECT_THROW(CudnnConv({same(8, 16, 8, 8, 3), ConvDirection::forward, DType::int64, 16}, h200), Error);
}

// What is timed: several plans that may all be run, with bias and ReLU in them or after them.
TEST(CudnnPlanCandidates, AreFusedAndPlain) {
  const CudnnDescriptor h200 = device_properties_from_json(kH200);
  CudnnConvKey key{same(128, 32, 64, 64, 3), ConvDirection::forward, DType::bfloat16};
  key.has_bias = true;
  key.choice = PlanChoice::timed;
  CudnnConv conv(key, h200);
  ASSERT_GE(conv.candidates(), 3u);
  EXPECT_TRUE(conv.is_fused(0));
  const std::size_t last = conv.candidates() - 1;
  EXPECT_FALSE(conv.is_fused(last));
  for (std::size_t i = 0; i <= last; ++i) EXPECT_LE(conv.workspace_bytes(i), std::size_t{1} << 30);
  conv.keep(last);
  EXPECT_EQ(conv.candidates(), 1u);
  EXPECT_FALSE(conv.is_fused());

  key.choice = PlanChoice::heuristic;
  EXPECT_EQ(CudnnConv(key, h200).candidates(), 1u);
}

// A ReLU without a bias is nothing that cuDNN has ready: it would compile it with the driver.
TEST(CudnnPlanCandidates, AreUnfusedWhereCudnnHasNoFusedPlan) {
  const CudnnDescriptor h200 = device_properties_from_json(kH200);
  CudnnConvKey key{same(128, 32, 64, 64, 3), ConvDirection::forward, DType::bfloat16};
  key.activation = Activation::relu;
  const CudnnConv conv(key, h200);
  if (conv.is_fused()) GTEST_SKIP() << "there is a driver";
  key.activation = Activation::none;
  const CudnnConv plain(key, h200);
  EXPECT_EQ(conv.workspace_bytes(), plain.workspace_bytes());
}

// Sums for a batch norm, and activations of products, come from plans that cuDNN compiles, which takes seconds and a
// driver. On a GPU, and where a driver has been preloaded that does nothing (tests/cudnn_driver.cpp), they must be there.
class CompiledPlan : public testing::Test {
 protected:
  static bool may_be_missing() { return !std::getenv("LD_PRELOAD") && cuda_device_count() == 0; }

  /// The GPU that is there; cuDNN's code for another may ask its driver for what it does not have.
  CudnnTarget target() const {
    return cuda_device_count() > 0 ? CudnnTarget(ThreadLibraries::current(0).cudnn()) : CudnnTarget(h200_);
  }

  static CudnnConvKey key_of(const Conv2dSpec& spec, DType dtype, bool has_bias) {
    CudnnConvKey key{spec, ConvDirection::forward, dtype};
    key.has_bias = has_bias;
    key.choice = PlanChoice::timed;
    key.has_sums = true;
    return key;
  }

  /// Adds the sums to what is timed, last, and only there.
  void expect_sums(const CudnnConvKey& key, std::size_t most_workspace = std::size_t{4} << 20) const {
    SCOPED_TRACE(describe_key(key));
    const CudnnConv conv(key, target());
    const std::size_t last = conv.candidates() - 1;
    if (may_be_missing() && !conv.has_sums(last)) GTEST_SKIP() << "there is no driver";
    EXPECT_TRUE(conv.has_sums(last));
    EXPECT_TRUE(conv.is_deterministic(last));
    EXPECT_EQ(conv.is_fused(last), key.has_bias);
    EXPECT_LE(conv.workspace_bytes(last), most_workspace);
    for (std::size_t i = 0; i < last; ++i) EXPECT_FALSE(conv.has_sums(i)) << i;
  }

 private:
  const CudnnDescriptor h200_ = device_properties_from_json(kH200);
};

TEST_F(CompiledPlan, SumsOfVgg16) { expect_sums(key_of(same(512, 32, 64, 64, 3), DType::bfloat16, true)); }
TEST_F(CompiledPlan, SumsOfResNet56) { expect_sums(key_of(same(512, 32, 16, 32, 3, 2), DType::float16, false)); }

// The first and last convolutions of ResNet-50's blocks; all but the sums is left to a matrix product.
TEST_F(CompiledPlan, SumsOfPointwise) {
  for (const Conv2dSpec& spec : {same(256, 56, 64, 256, 1), same(256, 14, 1024, 256, 1)}) {
    const CudnnConvKey key = key_of(spec, DType::bfloat16, false);
    expect_sums(key, std::size_t{16} << 20);
    const CudnnConv conv(key, target());
    EXPECT_LE(conv.candidates(), 2u);
    EXPECT_TRUE(conv.is_product());
    EXPECT_EQ(conv.workspace_bytes(), 0u);
  }
}

// Where there is no such plan the others are left.
TEST_F(CompiledPlan, NoSumsOfThreeChannels) {
  const CudnnConv conv(key_of(same(512, 32, 3, 64, 3), DType::bfloat16, true), target());
  EXPECT_FALSE(conv.has_sums(conv.candidates() - 1));
}
TEST_F(CompiledPlan, NoSumsUnlessPlansAreTimed) {
  CudnnConvKey key = key_of(same(512, 32, 64, 64, 3), DType::bfloat16, true);
  for (const PlanChoice choice : {PlanChoice::heuristic, PlanChoice::deterministic}) {
    key.choice = choice;
    const CudnnConv conv(key, target());
    EXPECT_EQ(conv.candidates(), 1u);
    EXPECT_FALSE(conv.has_sums());
  }
}
// Groups, holes and odd channels may have such a plan or not, but must not end in an error.
TEST_F(CompiledPlan, UnusualShapesKeepAPlan) {
  for (const Conv2dSpec& spec :
       {same(128, 32, 64, 64, 3, 1, 64), same(128, 32, 64, 64, 3, 1, 1, 2), same(16, 8, 77, 51, 3)})
    EXPECT_GE(CudnnConv(key_of(spec, DType::bfloat16, false), target()).candidates(), 1u);
}

// The first layer of a ViT-B's MLP forward, and the way back to it from the second: 64 images of 197 tokens.
TEST_F(CompiledPlan, MatrixProductsHaveTheirActivation) {
  if (may_be_missing()) GTEST_SKIP() << "there is no driver";
  CudnnMatmulKey forward{.transpose_b = true, .m = 64 * 197, .n = 3072, .k = 768};
  forward.has_bias = forward.stores_z = true;
  forward.activation = Activation::gelu;
  CudnnMatmulKey backward{.m = 64 * 197, .n = 3072, .k = 768};
  backward.grad = Activation::gelu;
  CudnnMatmulKey relu{.transpose_b = true, .m = 128, .n = 4096, .k = 4096};  // the classifier of a VGG16
  relu.has_bias = true;
  relu.activation = Activation::relu;
  CudnnMatmulKey through_relu{.m = 128, .n = 4096, .k = 4096};
  through_relu.grad = Activation::relu;
  for (CudnnMatmulKey key : {forward, backward, relu, through_relu})
    for (const auto& [dtype, tf32] : kTypes) {
      key.dtype = dtype;
      key.tf32 = tf32;
      CudnnMatmul matmul(key, target());
      EXPECT_FALSE(matmul.is_fused()) << "what needs no plan comes first";
      if (dtype == DType::float32 && !tf32) {
        EXPECT_EQ(matmul.candidates(), 1u) << "float32 that is multiplied as such is left to cuBLASLt";
        continue;
      }
      ASSERT_EQ(matmul.candidates(), 2u) << (tf32 ? "tf32" : ab::name_of(dtype));
      EXPECT_LE(matmul.workspace_bytes(), std::size_t{1} << 30);
      matmul.keep(1);
      EXPECT_EQ(matmul.candidates(), 1u);
      EXPECT_TRUE(matmul.is_fused());
    }
}

// ViT-Ti, -S and -B at 224 pixels, last batches and other numbers of tokens. op_test computes the graphs
// on tests/ptx, through their strides, beside attention written out.
TEST_F(CompiledPlan, AttentionIsFused) {
  if (may_be_missing()) GTEST_SKIP() << "there is no driver";
  if (cudnnGetVersion() < 91501) GTEST_SKIP() << "cuDNN " << cudnnGetVersion() << " is too old";
  constexpr std::size_t kSmall = 4096;
  for (const DType dtype : {DType::bfloat16, DType::float16})
    for (const AttentionSpec& shape : {AttentionSpec{256, 3, 197, 64}, AttentionSpec{256, 6, 197, 64},
                                       AttentionSpec{256, 12, 197, 64}, AttentionSpec{17, 12, 50, 64}})
      for (const bool deterministic : {false, true}) {
        AttentionSpec spec = shape;
        spec.dtype = dtype;
        SCOPED_TRACE(fmt::format("{} {} heads of {} tokens, {}", ab::name_of(dtype), spec.heads, spec.tokens,
                                 deterministic ? "deterministic" : "with sums"));
        ASSERT_TRUE(can_fuse_attention(spec, cudnnGetVersion()));
        const CudnnAttention attention({spec, deterministic}, target());
        ASSERT_TRUE(attention.exists());
        EXPECT_LE(attention.forward_workspace_bytes(), kSmall);
        // One of them keeps dS there, the other adds up dQ in memory that it is given.
        EXPECT_EQ(attention.backward_workspace_bytes() > kSmall, deterministic);
        EXPECT_LE(attention.backward_workspace_bytes(), std::size_t{1} << 29);
      }
}

TEST(FusedAttention, IsLeftOutWhereCudnnIsKnownToBeWrong) {
  constexpr std::size_t kNew = 91900;
  const AttentionSpec vit{256, 12, 197, 64, DType::bfloat16};
  const auto with = [&](auto change) {
    AttentionSpec spec = vit;
    change(spec);
    return spec;
  };
  EXPECT_TRUE(can_fuse_attention(vit, kNew));
  EXPECT_FALSE(can_fuse_attention(vit, 91500)) << "reads beyond the last tile";
  EXPECT_TRUE(can_fuse_attention(with([](auto& s) { s.tokens = 256; }), 91500));
  EXPECT_FALSE(can_fuse_attention(with([](auto& s) { s.dtype = DType::float32; }), kNew));
  EXPECT_FALSE(can_fuse_attention(with([](auto& s) { s.width = 20; }), kNew));
  EXPECT_FALSE(can_fuse_attention(with([](auto& s) { s.width = 136; }), kNew));
  for (const std::int64_t tokens : {1, 64, 192, 320})
    EXPECT_FALSE(can_fuse_attention(with([&](auto& s) { s.tokens = tokens; }), kNew)) << tokens;
}

TEST_F(CompiledPlan, BackwardDataHasTheWayBackThroughAnActivation) {
  if (may_be_missing()) GTEST_SKIP() << "there is no driver";
  for (const Conv2dSpec& spec : {same(128, 32, 64, 64, 3), same(128, 8, 256, 256, 3), same(128, 2, 512, 512, 3)})
    for (const auto& [dtype, tf32] : kTypes) {
      CudnnConvKey key{spec, ConvDirection::backward_data, dtype, 16, tf32};
      key.grad = Activation::relu;
      SCOPED_TRACE(describe_key(key));
      const CudnnConv conv(key, target());
      EXPECT_TRUE(conv.is_fused());
      EXPECT_TRUE(conv.is_deterministic());
    }
}

// Under --autotune, the plans without the way back are timed beside one with it.
TEST_F(CompiledPlan, OfTheWayBackIsOneAmongOthers) {
  if (may_be_missing()) GTEST_SKIP() << "there is no driver";
  CudnnConvKey key{same(128, 32, 64, 64, 3), ConvDirection::backward_data, DType::bfloat16};
  key.grad = Activation::relu;
  key.choice = PlanChoice::timed;
  const CudnnConv conv(key, target());
  ASSERT_GE(conv.candidates(), 2u);
  EXPECT_TRUE(conv.is_fused(0));
  for (std::size_t i = 1; i < conv.candidates(); ++i) EXPECT_FALSE(conv.is_fused(i));
}

/// Values like those of activations, on the GPU.
Tensor drawn(const Shape& shape, DType dtype, std::uint64_t stream) {
  Tensor t(shape);
  fill_normal(t, 0.0, 1.0, Philox{.seed = 7, .stream = stream});
  return cast(t, dtype).to(Device{DeviceKind::cuda, 0});
}

/// The first row holds what came of a NaN, which must not have been lost; the others are close.
void expect_rows(const Tensor& got, const Tensor& expected) {
  const std::vector<double> a = got.to_doubles(), b = expected.to_doubles();
  const auto columns = static_cast<std::size_t>(got.dim(-1));
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (i < columns) ASSERT_TRUE(std::isnan(a[i]) || !std::isnan(b[i])) << "column " << i;
    else ASSERT_NEAR(a[i], b[i], 2e-2 * std::fmax(1, std::abs(b[i]))) << "element " << i;
  }
}

// Where there is a GPU: the numbers of such plans against a product and a pass of our own.
TEST_F(CompiledPlan, OnAGpuMultipliesAsSeparatePassesDo) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_unavailable_reason();
  const Device gpu{DeviceKind::cuda, 0};
  ThreadLibraries& libraries = ThreadLibraries::current(0);
  const auto values = [&](const Shape& shape, std::uint64_t stream) { return drawn(shape, DType::bfloat16, stream); };
  const std::int64_t m = 256, n = 512, k = 64;
  const Tensor a = values({m, k}, 1), b = values({n, k}, 2), bias = values({n}, 3), saved = values({m, n}, 4);
  fill(a.slice(0, 1), std::numeric_limits<double>::quiet_NaN());
  const Tensor c({m, n}, DType::bfloat16, gpu), z(c.shape(), c.dtype(), gpu);
  const Tensor expected(c.shape(), c.dtype(), gpu), expected_z(c.shape(), c.dtype(), gpu);
  const auto run = [&](CudnnMatmulKey key, const CudnnMatmulData& data) {
    key.transpose_b = true;
    key.m = m;
    key.n = n;
    key.k = k;
    key.dtype = DType::bfloat16;
    CudnnMatmul matmul(key, libraries.cudnn());
    ASSERT_EQ(matmul.candidates(), 2u);
    matmul.keep(1);
    matmul.execute(libraries.cudnn(), data, libraries.stream().workspace(matmul.workspace_bytes()));
  };
  for (const Activation activation : {Activation::relu, Activation::gelu}) {
    CudnnMatmulKey forward, backward;
    forward.has_bias = forward.stores_z = true;
    forward.activation = backward.grad = activation;
    run(forward, {.a = a.raw(), .b = b.raw(), .c = c.raw(), .bias = bias.raw(), .z = z.raw()});
    backend(gpu).gemm({.transpose_b = true}, a, b, expected, {bias, activation, expected_z});
    expect_rows(c, expected);
    expect_rows(z, expected_z);
    run(backward, {.a = a.raw(), .b = b.raw(), .c = c.raw(), .saved = saved.raw()});
    backend(gpu).gemm({.transpose_b = true}, a, b, expected, {.grad = {activation, saved}});
    expect_rows(c, expected);
  }
}

void expect_close(const Tensor& got, const Tensor& expected, double tolerance) {
  const std::vector<double> a = got.to_doubles(), b = expected.to_doubles();
  for (std::size_t i = 0; i < a.size(); ++i)
    ASSERT_NEAR(a[i], b[i], tolerance * std::fmax(1, std::abs(b[i]))) << "element " << i;
}

constexpr Conv2dSpec kSmall{.batch = 8,
                            .height = 16,
                            .width = 16,
                            .in_channels = 64,
                            .out_channels = 64,
                            .kernel_h = 3,
                            .kernel_w = 3,
                            .padding = 1};

// float32 without TF32 shows whether cuDNN's notes tell the truth about what it compiles.
TEST_F(CompiledPlan, OnAGpuTheWayBackIsThatOfSeparatePasses) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_unavailable_reason();
  ThreadLibraries& libraries = ThreadLibraries::current(0);
  for (const DType dtype : {DType::bfloat16, DType::float16, DType::float32}) {
    const Shape pixels{8, 16, 16, 64};
    const Tensor dy = drawn(pixels, dtype, 1), w = drawn({64, 3, 3, 64}, dtype, 2), saved = drawn(pixels, dtype, 3);
    const Tensor dx(pixels, dtype, dy.device()), expected(pixels, dtype, dy.device());
    CudnnConvKey key{kSmall, ConvDirection::backward_data, dtype};
    key.grad = Activation::relu;
    SCOPED_TRACE(describe_key(key));
    const CudnnConv conv(key, libraries.cudnn());
    ASSERT_TRUE(conv.is_fused());
    conv.execute(libraries.cudnn(), {.x = dx.raw(), .w = w.raw(), .y = dy.raw(), .saved = saved.raw()},
                 libraries.stream().workspace(conv.workspace_bytes()));
    backend(dy.device()).conv2d_backward_data(kSmall, dy, w, expected, {.grad = {Activation::relu, saved}});
    expect_close(dx, expected, dtype == DType::float32 ? 1e-4 : 2e-2);
  }
}

// Written twice into memory that holds NaN: a plan that adds to what is there would show.
TEST_F(CompiledPlan, OnAGpuSumsAreThoseOfTheResult) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_unavailable_reason();
  ThreadLibraries& libraries = ThreadLibraries::current(0);
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    const Shape pixels{8, 16, 16, 64};
    const Tensor x = drawn(pixels, dtype, 1), w = drawn({64, 3, 3, 64}, dtype, 2), bias = drawn({64}, dtype, 3);
    const Tensor y(pixels, dtype, x.device()), sums(Shape{2, 64}, DType::float32, x.device());
    fill(sums, std::numeric_limits<double>::quiet_NaN());
    CudnnConvKey key{kSmall, ConvDirection::forward, dtype};
    key.has_bias = key.has_sums = true;
    key.choice = PlanChoice::timed;
    SCOPED_TRACE(describe_key(key));
    CudnnConv conv(key, libraries.cudnn());
    const std::size_t last = conv.candidates() - 1;
    ASSERT_TRUE(conv.has_sums(last));
    conv.keep(last);
    for (int i = 0; i < 2; ++i)
      conv.execute(libraries.cudnn(),
                   {.x = x.raw(), .w = w.raw(), .y = y.raw(), .bias = bias.raw(), .sums = sums.data<float>()},
                   libraries.stream().workspace(conv.workspace_bytes()));
    const std::vector<double> values = y.to_doubles(), got = sums.to_doubles();
    for (std::size_t c = 0; c < 64; ++c) {
      double sum = 0, magnitude = 0, squares = 0;
      for (std::size_t i = c; i < values.size(); i += 64) {
        sum += values[i];
        magnitude += std::abs(values[i]);
        squares += values[i] * values[i];
      }
      ASSERT_NEAR(got[c], sum, 1e-3 * magnitude) << "channel " << c;
      ASSERT_NEAR(got[64 + c], squares, 1e-2 * squares) << "channel " << c;
    }
  }
}

/// While it lives, cuDNN takes a handle that does not exist for one of the H200: it is told the properties of that
/// device wherever it is told the handle, or would look for one in its graph.
class PretendedHandle {
 public:
  PretendedHandle() { current_ = this; }
  ~PretendedHandle() { current_ = nullptr; }
  PretendedHandle(const PretendedHandle&) = delete;
  PretendedHandle& operator=(const PretendedHandle&) = delete;

  cudnnHandle_t handle() { return reinterpret_cast<cudnnHandle_t>(this); }
  auto given(cudnnBackendAttributeName_t name) const { return std::ranges::count(given_, name); }

  static cudnnStatus_t set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                           cudnnBackendAttributeType_t type, std::int64_t count, const void* values) {
    static const auto real =
        reinterpret_cast<decltype(&cudnnBackendSetAttribute)>(dlsym(RTLD_NEXT, "cudnnBackendSetAttribute"));
    if (!current_) return real(descriptor, name, type, count, values);
    current_->given_.push_back(name);
    const auto tell_properties = [&](cudnnBackendAttributeName_t instead) {
      const cudnnBackendDescriptor_t h200 = current_->h200_.raw();
      return real(descriptor, instead, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &h200);
    };
    if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE) return CUDNN_STATUS_SUCCESS;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE) return tell_properties(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
    if (name == CUDNN_ATTR_ENGINEHEUR_MODE) (void)tell_properties(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
    return real(descriptor, name, type, count, values);
  }

 private:
  static inline PretendedHandle* current_ = nullptr;
  const CudnnDescriptor h200_ = device_properties_from_json(kH200);
  std::vector<cudnnBackendAttributeName_t> given_;
};

// Properties are for plans that are looked at; what runs on a GPU is planned for its handle, and for nothing else.
TEST(CudnnTarget, IsAHandleOrPropertiesAndNeverBoth) {
  PretendedHandle pretended;
  const CudnnConvKey key{same(128, 32, 64, 64, 3), ConvDirection::forward, DType::bfloat16};
  const CudnnConv conv(key, pretended.handle());
  EXPECT_EQ(pretended.given(CUDNN_ATTR_OPERATIONGRAPH_HANDLE), 1);
  EXPECT_GE(pretended.given(CUDNN_ATTR_EXECUTION_PLAN_HANDLE), 1);
  for (const auto name : {CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP})
    EXPECT_EQ(pretended.given(name), 0);
}

TEST(CudnnPlanErrors, UnknownDevicesAreRefused) {
  EXPECT_THROW(device_properties_from_json("{\"deviceName\": \"no such GPU\"}"), Error);
}

}  // namespace

/// In place of cuDNN's own, for the test of CudnnTarget.
extern "C" cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                                  cudnnBackendAttributeType_t type, std::int64_t count,
                                                  const void* values) {
  return PretendedHandle::set(descriptor, name, type, count, values);
}

}  // namespace ab::cuda

#endif
