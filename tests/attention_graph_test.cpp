// SPDX-License-Identifier: MIT
//
// The graphs of fused attention, computed node by node through their strides, beside attention written out. That cuDNN has
// a plan for a graph (cudnn_plan_test.cpp) says nothing of what it means.
#include "engine/backend/attention_graph.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/backend/emulated_gpu/evaluate_graph.h"
#include "engine/core/random.h"
#include "tests/reference/attention_reference.h"

namespace ab {
namespace {

using reference::Values;

Values drawn(std::int64_t count, std::uint64_t stream) {
  Values values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 2 * Philox{5, stream}.uniform(i) - 1;
  return values;
}

double largest_difference(const Values& a, const Values& b) {
  double largest = a.size() == b.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

/// Everything that the graphs read and write, the results filled with NaN.
struct Memory {
  AttentionSpec spec;
  Values qkv, dy, y, log_sums, row_sums, dq_sums, dqkv;
  double scale, one = 1;

  explicit Memory(const AttentionSpec& s)
      : spec(s),
        qkv(drawn(3 * outputs(), 1)),
        dy(drawn(outputs(), 2)),
        y(static_cast<std::size_t>(outputs()), NAN),
        log_sums(static_cast<std::size_t>(s.samples * s.heads * s.tokens), NAN),
        row_sums(log_sums),
        dq_sums(y),
        dqkv(qkv.size(), NAN),
        scale(1 / std::sqrt(static_cast<double>(s.width))) {
    for (double& value : qkv) value *= 3;
  }
  std::int64_t outputs() const { return spec.samples * spec.tokens * spec.heads * spec.width; }

  std::map<AttentionTensor, double*> addresses() {
    const auto part = [&](Values& packed, int i) { return packed.data() + offset_of_part(spec, i); };
    return {{AttentionTensor::q, part(qkv, 0)},
            {AttentionTensor::k, part(qkv, 1)},
            {AttentionTensor::v, part(qkv, 2)},
            {AttentionTensor::y, y.data()},
            {AttentionTensor::log_sums, log_sums.data()},
            {AttentionTensor::scale, &scale},
            {AttentionTensor::dy, dy.data()},
            {AttentionTensor::dq, part(dqkv, 0)},
            {AttentionTensor::dk, part(dqkv, 1)},
            {AttentionTensor::dv, part(dqkv, 2)},
            {AttentionTensor::row_sums, row_sums.data()},
            {AttentionTensor::dq_sums, dq_sums.data()},
            {AttentionTensor::one, &one}};
  }
  Values attention_of(const Values& x) const {
    const auto size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
    return reference::attention(x, size(spec.samples), size(spec.tokens), size(spec.heads), size(spec.width));
  }
};

constexpr AttentionSpec kSpecs[] = {
    {2, 3, 5, 8, DType::bfloat16}, {1, 2, 17, 16, DType::float16}, {3, 1, 2, 8, DType::bfloat16}};

TEST(AttentionGraph, ForwardIsAttention) {
  for (const AttentionSpec& spec : kSpecs) {
    Memory memory(spec);
    emulated_gpu::evaluate_graph(attention_forward_graph(spec), memory.addresses());
    EXPECT_LT(largest_difference(memory.y, memory.attention_of(memory.qkv)), 1e-13);
    // L of the first row: ln Σ exp(q·k / √d)
    double sum = 0;
    const std::int64_t stride = 3 * spec.heads * spec.width;
    for (std::int64_t s = 0; s < spec.tokens; ++s) {
      double dot = 0;
      for (std::int64_t i = 0; i < spec.width; ++i)
        dot += memory.qkv[static_cast<std::size_t>(i)] *
               memory.qkv[static_cast<std::size_t>(s * stride + offset_of_part(spec, 1) + i)];
      sum += std::exp(dot * memory.scale);
    }
    EXPECT_NEAR(memory.log_sums[0], std::log(sum), 1e-13);
  }
}

TEST(AttentionGraph, BackwardIsItsGradient) {
  for (const AttentionSpec& spec : kSpecs)
    for (const bool deterministic : {false, true}) {
      Memory memory(spec);
      emulated_gpu::evaluate_graph(attention_forward_graph(spec), memory.addresses());
      emulated_gpu::evaluate_graph(attention_backward_graph(spec, deterministic), memory.addresses());
      // Central differences of Σ dy ∘ y at some of the inputs.
      const auto loss = [&](const Values& x) {
        const Values y = memory.attention_of(x);
        double sum = 0;
        for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * memory.dy[i];
        return sum;
      };
      constexpr double kStep = 1e-5;
      for (std::size_t i = 0; i < memory.qkv.size(); i += 1 + memory.qkv.size() / 60) {
        Values above = memory.qkv, below = memory.qkv;
        above[i] += kStep, below[i] -= kStep;
        EXPECT_NEAR(memory.dqkv[i], (loss(above) - loss(below)) / (2 * kStep), 1e-8) << i;
      }
      for (const double v : memory.dqkv) EXPECT_TRUE(std::isfinite(v));
    }
}

TEST(AttentionGraph, IsLeftOutWhereCudnnIsKnownToBeWrong) {
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

}  // namespace
}  // namespace ab
