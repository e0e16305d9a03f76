// SPDX-License-Identifier: MIT
//
// Steps as graphs: the memory pool of a graph, capture and launch, and when a training step is captured again. The
// pool is tested on the CPU, the rest where there is a GPU.
#include "engine/device/graph.h"

#include <gtest/gtest.h>

#include <cmath>

#include "apps/train/run_transport.h"
#include "apps/train/train_step.h"
#include "engine/backend/backend.h"
#include "engine/core/graph_pool.h"
#include "engine/core/memory.h"
#include "engine/core/threads.h"
#include "engine/device/device.h"
#include "engine/kernels/elementwise.h"
#include "engine/kernels/random.h"
#include "layers/model_state.h"
#include "layers/models/models.h"
#include "layers/output_moments.h"
#include "layers/weight.h"
#include "tests/ptx_gpu.h"

namespace ab {
namespace {

constexpr Device kGpu{DeviceKind::cuda, 0};

TEST(GraphPool, HandsOutTheSmallestRangeThatFits) {
  const auto pool = GraphPool::create({});
  auto large = pool->allocate(64 << 10), wall = pool->allocate(1), small = pool->allocate(4 << 10);
  const auto end = pool->allocate(1);
  const void *of_large = large.get(), *of_small = small.get();
  large.reset(), small.reset();
  EXPECT_EQ(pool->allocate(3 << 10).get(), of_small);
  EXPECT_EQ(pool->allocate(5 << 10).get(), of_large);
  wall.reset();  // now all three are one range again
  EXPECT_EQ(pool->allocate(68 << 10).get(), of_large);
}

TEST(GraphPool, RangesDoNotOverlap) {
  const auto pool = GraphPool::create({});
  std::vector<std::pair<std::shared_ptr<void>, std::size_t>> blocks;
  for (std::uint64_t i = 0; i < 400; ++i) {
    const Philox random{.seed = 1};
    const auto bytes = static_cast<std::size_t>(random.below(2 * i, 1 << 20));
    if (blocks.size() > 40) blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(random.below(2 * i + 1, 40)));
    blocks.emplace_back(pool->allocate(bytes), bytes);
    const auto* begin = static_cast<const char*>(blocks.back().first.get());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(begin) % 64, 0u);
    for (std::size_t j = 0; j + 1 < blocks.size(); ++j) {
      const auto* other = static_cast<const char*>(blocks[j].first.get());
      ASSERT_TRUE(begin + bytes <= other || other + blocks[j].second <= begin);
    }
  }
  EXPECT_LT(pool->bytes(), std::size_t{80} << 20) << "what was released does not serve again";
}

TEST(GraphPool, LivesAsLongAsATensorInIt) {
  const std::int64_t before = memory({}).stats().live_bytes;
  Tensor kept, outside;
  {
    const auto pool = GraphPool::create({});
    {
      const GraphPool::Scope scope(*pool);
      kept = Tensor::from(std::vector<float>{1, 2}, {2});
    }
    outside = Tensor({2});
    EXPECT_FALSE(GraphPool::current({}));
  }
  EXPECT_GE(memory({}).stats().live_bytes - before, std::int64_t{8} << 20);
  EXPECT_EQ(kept.to_doubles(), (std::vector<double>{1, 2}));
  kept = {}, outside = {};
  EXPECT_EQ(memory({}).stats().live_bytes, before);
}

TEST(Graph, IsNotForACpu) {
  EXPECT_THROW(capture_graph(*GraphPool::create({}), [] {}), Error);
}

TEST(GraphUse, IsChosenByDeviceAndBatchNorm) {
  const auto use = [](const char* word, const char* device, SyncBn sync_bn = SyncBn::off) {
    TrainConfig config;
    config.cuda_graph = word, config.device = device, config.sync_bn = sync_bn;
    return choose_graph_use(config);
  };
  EXPECT_EQ(use("auto", "cuda"), GraphUse::if_possible);
  EXPECT_EQ(use("on", "cuda:1"), GraphUse::required);
  EXPECT_EQ(use("off", "cuda"), GraphUse::off);
  EXPECT_EQ(use("auto", "cpu"), GraphUse::off);
  EXPECT_EQ(use("auto", "cuda", SyncBn::group), GraphUse::off);
  EXPECT_THROW(use("on", "cpu"), Error);
  EXPECT_THROW(use("on", "cuda", SyncBn::world), Error);
}

class GpuGraph : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << cuda_unavailable_reason();
    set_compute_threads(1);  // the work is small
  }
};

TEST_F(GpuGraph, RunsWhenItIsLaunchedAndReadsWhatIsThereThen) {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3, 4}, {2, 2}, kGpu);
  const Tensor y = Tensor::zeros({2, 2}, x.dtype(), kGpu);
  backend(kGpu).gemm({}, x, x, y);  // its plan
  y.set_zero();
  const auto graph = capture_graph(*GraphPool::create(kGpu), [&] {
    const Tensor sum = add(x, x).clone();
    const Tensor zero = Tensor::zeros({2, 2}, x.dtype(), kGpu);
    backend(kGpu).gemm({}, x, add(sum, zero), y);
  });
  EXPECT_EQ(y.to_doubles(), (std::vector<double>{0, 0, 0, 0}));
  const Tensor other = Tensor::zeros({2, 2}, x.dtype(), kGpu);  // not where the graph keeps its values
  graph->launch();
  EXPECT_EQ(other.to_doubles(), (std::vector<double>{0, 0, 0, 0}));
  EXPECT_EQ(y.to_doubles(), (std::vector<double>{14, 20, 30, 44}));
  x.copy_from(Tensor::from(std::vector<float>{1, 0, 0, 1}, {2, 2}));
  graph->launch();
  EXPECT_EQ(y.to_doubles(), (std::vector<double>{2, 0, 0, 2}));
}

TEST_F(GpuGraph, HoldsNothingThatNeedsTheHost) {
  const Tensor x = Tensor::zeros({4}, DType::float32, kGpu);
  const Tensor host = Tensor::zeros({4});
  const auto pool = GraphPool::create(kGpu);
  const auto refused = [&](const std::function<void()>& work) {
    try {
      capture_graph(*pool, work);
    } catch (const Bug& bug) {
      return std::string(bug.what());
    }
    return std::string("captured");
  };
  EXPECT_NE(refused([&] { x.to_doubles(); }).find("a copy to host memory inside a captured step"), std::string::npos);
  EXPECT_NE(refused([&] { x.copy_from(host); }).find("a copy from host memory"), std::string::npos);
  EXPECT_NE(refused([&] { synchronize(kGpu); }).find("waiting for the device"), std::string::npos);
  EXPECT_NE(refused([&] { capture_graph(*pool, [] {}); }).find("a second capture"), std::string::npos);
  fill(x, 3);  // the stream is as it was
  EXPECT_EQ(x.to_doubles(), std::vector<double>(4, 3.0));
}

/// A small model that draws noise, and updates of its gradients.
struct Updates {
  explicit Updates(GraphUse use, Precision precision = Precision::fp32)
      : model(make_model(
            {.name = "resnet20", .classes = 4, .image_size = 8, .width = 0.25, .dropout = 0.5, .drop_path = 0.5},
            kGpu)),
        step(*model, kGpu, precision, 0.1, use) {}

  static Batch batch(std::uint64_t seed, std::int64_t count = 2) {
    Batch b{Tensor({count, 8, 8, 3}, DType::float32, kGpu), {}};
    fill_normal(b.images, 0, 1, Philox{seed, 5});
    std::vector<std::int64_t> labels, mixed;
    for (std::int64_t i = 0; i < count; ++i) labels.push_back(i % 4), mixed.push_back((i + 1) % 4);
    b.labels = Tensor::from(labels, {count}, kGpu);
    b.mixed_labels = Tensor::from(mixed, {count}, kGpu);
    b.mix = 0.25 + 0.125 * static_cast<double>(seed % 4);
    return b;
  }

  /// Loss and gradients of an update of two micro-batches, and the order of the hooks in the second.
  std::vector<double> update(std::uint64_t seed, std::int64_t count = 2) {
    std::vector<double> values;
    for (Param* p : all_params(*model)) p->value.clear_grad();
    const std::vector<Param*> params = inventory_of(*model).params;
    for (std::uint64_t i = 0; i < 2; ++i) {
      const bool last = i == 1;
      for (std::size_t n = 0; n < params.size(); ++n)
        params[n]->value.set_grad_ready_hook([&values, n, last] {
          if (last) values.push_back(static_cast<double>(n));
        });
      const double loss_scale = seed % 2 ? 1024 : 512;
      const Tensor loss = step.run(batch(seed + i, count), {.noise_seed = seed * 2 + i,
                                                            .share = 0.5 + 0.25 * static_cast<double>(seed % 3),
                                                            .loss_scale = loss_scale,
                                                            .last = last,
                                                            .overlapped = overlapped});
      values.push_back(loss.item());
    }
    for (Param* p : params) {
      p->value.set_grad_ready_hook({});
      if (!p->trainable()) continue;
      for (const double v : p->value.grad().to_doubles()) values.push_back(v);
    }
    return values;
  }

  std::unique_ptr<Layer> model;
  TrainStep step;
  bool overlapped = false;
};

void expect_equal(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  const double tolerance = on_ptx_gpu() ? 0 : 1e-3;  // some plans add up in another order every time
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], tolerance * (1 + std::abs(a[i]))) << i;
}

TEST_F(GpuGraph, AStepGivesTheSameBitsWithSeedsSharesAndScalesOfItsOwn) {
  for (const Precision precision : {Precision::fp32, Precision::fp16}) {
    Updates plain(GraphUse::off, precision), graphed(GraphUse::required, precision);
    for (std::uint64_t seed = 0; seed < 3; ++seed) expect_equal(plain.update(seed), graphed.update(seed));
    EXPECT_EQ(graphed.step.captures(), 1);
  }
}

TEST_F(GpuGraph, AStepOfWhichGradientsTravelMeanwhileIsNotCaptured) {
  Updates plain(GraphUse::off), graphed(GraphUse::required);
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    graphed.overlapped = seed == 0 || seed == 3;
    expect_equal(plain.update(seed), graphed.update(seed));
    EXPECT_EQ(graphed.step.captures(), seed == 0 ? 0 : 1);
  }
}

TEST_F(GpuGraph, AStepThatCannotBeCapturedRunsAsItIsWhereThatIsAllowed) {
  const auto model = make_model({.name = "mlp", .classes = 2, .image_size = 4}, kGpu);
  const Tensor counter = Tensor::zeros({1}, DType::float32, kGpu);
  const auto count = [&] {
    fill(counter, counter.item() + 1);
    return counter;
  };
  StepGraph lenient(kGpu, GraphUse::if_possible), strict(kGpu, GraphUse::required);
  for (double n = 1; n <= 3; ++n) EXPECT_EQ(lenient.run(StepKey(*model, {}), count, false).item(), n);
  EXPECT_EQ(lenient.captures(), 0);
  strict.run(StepKey(*model, {}), count, false);
  EXPECT_THROW(strict.run(StepKey(*model, {}), count, false), Bug);
}

TEST_F(GpuGraph, KeepsNoMemoryOnceItIsDropped) {
  Updates run(GraphUse::required);
  const auto clear_grads = [&] {
    for (Param* p : all_params(*run.model)) p->value.clear_grad();
  };
  const std::int64_t before = memory(kGpu).stats().live_bytes;
  const std::vector<double> first = run.update(1);
  clear_grads();
  EXPECT_GT(memory(kGpu).stats().live_bytes, before);
  run.step.drop_graph();
  EXPECT_EQ(memory(kGpu).stats().live_bytes, before);
  expect_equal(first, run.update(1));
  EXPECT_EQ(run.step.captures(), 2);
}

TEST_F(GpuGraph, AStepThatHasNoMemoryForItsPoolRunsAsItIsWhereThatIsAllowed) {
  if (!on_ptx_gpu()) GTEST_SKIP() << "a real GPU has too much of it";
  const auto model = make_model({.name = "resnet20", .classes = 2, .image_size = 8, .width = 0.25}, kGpu);
  const Tensor statistic = inventory_of(*model).buffers.front().value;
  OutputMoments observed(3, kGpu);
  inventory_of(*model).weights.front()->set_observer(&observed);
  fill(statistic, 0);
  const auto step = [&] {
    for (const Tensor& counts : {statistic, observed.sums()}) {
      const Tensor ones(counts.shape(), DType::float32, kGpu);
      fill(ones, 1);
      axpy(1, ones, counts);
    }
    const Tensor large({3 << 20}, DType::float32, kGpu);  // 12 MiB, for which a pool takes 16 beside its first 8
    return statistic.slice(0, 1).clone();
  };
  setenv("PTX_BYTES", std::to_string(memory(kGpu).stats().live_bytes + (20 << 20)).c_str(), 1);
  StepGraph lenient(kGpu, GraphUse::if_possible), strict(kGpu, GraphUse::required);
  for (double n = 1; n <= 3; ++n) {
    EXPECT_EQ(lenient.run(StepKey(*model, {}), step, false).item(), n);
    EXPECT_EQ(observed.samples().item(), n);
  }
  EXPECT_EQ(lenient.captures(), 0);
  EXPECT_FALSE(lenient.has_pool());
  EXPECT_THROW(strict.run(StepKey(*model, {}), step, false), OutOfMemory);
  unsetenv("PTX_BYTES");
}

TEST_F(GpuGraph, AStepIsCapturedAgainWhenItRefersToOtherTensors) {
  Updates plain(GraphUse::off), graphed(GraphUse::required);
  std::uint64_t seed = 0;
  const auto expect_equal_updates = [&](std::int64_t captures, std::int64_t count = 2) {
    for (int i = 0; i < 2; ++i, ++seed) expect_equal(plain.update(seed, count), graphed.update(seed, count));
    EXPECT_EQ(graphed.step.captures(), captures);
  };
  const auto change = [&](const std::function<void(Weight&)>& weight) {
    for (Updates* run : {&plain, &graphed}) weight(*inventory_of(*run->model).weights[2]);
  };
  const auto factor = [](const Shape& shape) {
    Tensor t(shape, DType::float32, kGpu);
    fill_normal(t, 0, 0.1, Philox{9, 1});
    return t;
  };
  const auto split = [&](Weight::Mode mode, std::int64_t r) {
    change([&](Weight& w) { w.factorise(factor({w.rows(), r}), factor({r, w.columns()}), mode); });
  };
  expect_equal_updates(1);
  split(Weight::Mode::train_a, 3);
  expect_equal_updates(2);
  split(Weight::Mode::train_b, 3);
  expect_equal_updates(3);
  split(Weight::Mode::train_b, 2);
  expect_equal_updates(4);
  change([&](Weight& w) { w.restore(factor(w.shape())); });
  expect_equal_updates(5);
  expect_equal_updates(6, 1);  // a smaller batch
}

}  // namespace
}  // namespace ab
