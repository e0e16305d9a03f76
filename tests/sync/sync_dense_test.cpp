// SPDX-License-Identifier: MIT
//
// Gradient buckets and the dense strategy, on ranks that are threads. The model is a handful of vectors that
// are drawn to targets, which differ between ranks: loss = Σ ½ |w − target|², gradient w − target.
#include "engine/sync/dense.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <numeric>

#include "engine/kernels/elementwise.h"
#include "engine/kernels/pack.h"
#include "engine/sync/flat.h"

namespace ab {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t kSizes[] = {3, 100, 1, 40, 7};
constexpr std::int64_t kDenseElements = 151;

/// The parameters w0 … w4; all elements of wk are k + offset.
struct Model {
  explicit Model(double offset = 0) {
    for (int k = 0; const std::int64_t size : kSizes) {
      Tensor w(Shape{size});
      std::fill_n(w.data<float>(), size, static_cast<float>(k + offset));
      params.push_back({fmt::format("w{}", k++), Var(w, true)});
    }
  }
  std::vector<Param*> list() {
    std::vector<Param*> pointers;
    for (Param& p : params) pointers.push_back(&p);
    return pointers;
  }
  std::deque<Param> params;
};

/// previous + ½ |w − target|²
Var pull(const Var& previous, const Var& w, float target) {
  Tensor distance = w.value().clone();
  for (float& d : distance.span<float>()) d -= target;
  double loss = previous.value().item();
  for (const float d : distance.span<float>()) loss += 0.5 * d * d;
  return record("pull", Tensor::scalar(loss), {previous, w}, [distance](const Tensor& dy) -> Gradients {
    return {dy.clone(), distance.clone()};
  });
}

/// Backward reaches the parameters in the opposite of this order.
void backward_over(Model& model, const std::vector<std::size_t>& order, float target) {
  Var loss(Tensor::scalar(0));
  for (const std::size_t k : order) loss = pull(loss, model.params[k].value, target);
  backward(loss);
}
const std::vector<std::size_t> kForward = {0, 1, 2, 3, 4};

void expect_grads(const Model& model, const std::function<double(int)>& expected) {
  for (int k = 0; const Param& p : model.params) {
    ASSERT_TRUE(p.value.grad().defined()) << p.name;
    EXPECT_EQ(p.value.grad().shape(), p.value.shape());
    for (const double g : p.value.grad().to_doubles())
      ASSERT_FLOAT_EQ(static_cast<float>(g), static_cast<float>(expected(k))) << p.name;
    ++k;
  }
}

void run(int ranks, const std::function<void(Comm&)>& body) { run_thread_ranks(ranks, {.timeout = 20s}, body); }
std::int64_t calls(Comm& comm) { return comm.ledger().total().calls; }
double mean_target(const Comm& comm) { return (comm.size() - 1) / 2.0; }

class OnRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, OnRanks, testing::Values(1, 2, 3, 5));

TEST_P(OnRanks, BucketsGiveEveryRankTheMeanGradient) {
  for (const std::int64_t bucket_bytes : {1, 160, 450, 1 << 20})
    run(GetParam(), [&](Comm& comm) {
      Model model;
      GradientBuckets buckets(model.list(), comm, ReduceOp::mean, {.bucket_bytes = bucket_bytes});
      for (int step = 0; step < 3; ++step) {
        for (Param& p : model.params) p.value.clear_grad();
        backward_over(model, kForward, static_cast<float>(comm.rank() + step));
        buckets.finish();
        expect_grads(model, [&](int k) { return k - mean_target(comm) - step; });
      }
    });
}

TEST_P(OnRanks, BackwardMayRunInAnotherOrderOnEachRank) {
  run(GetParam(), [](Comm& comm) {
    Model model;
    GradientBuckets buckets(model.list(), comm, ReduceOp::sum, {.bucket_bytes = 1});
    auto order = kForward;
    std::rotate(order.begin(), order.begin() + comm.rank() % 5, order.end());
    backward_over(model, order, static_cast<float>(comm.rank()));
    buckets.finish();
    expect_grads(model, [&](int k) { return comm.size() * (k - mean_target(comm)); });
  });
}

TEST_P(OnRanks, AParameterWithoutGradientCountsAsZerosAndReceivesTheMean) {
  run(GetParam(), [](Comm& comm) {
    Model model;
    GradientBuckets buckets(model.list(), comm, ReduceOp::mean, {.bucket_bytes = 160});
    backward_over(model, comm.rank() == 0 ? std::vector<std::size_t>{0, 1, 2, 4} : kForward, -1.0f);
    buckets.finish();
    const double p = comm.size();
    expect_grads(model, [&](int k) { return k == 3 ? 4 * (p - 1) / p : k + 1; });
  });
}

TEST(GradientBuckets, AnOddSizeMisalignsNoOther) {
  run(2, [](Comm& comm) {
    Model model;
    GradientBuckets buckets(model.list(), comm);
    backward_over(model, kForward, 0);
    buckets.finish();
    expect_grads(model, [](int k) { return k; });
    for (const std::size_t k : {1, 3, 4})  // of 100, 40 and 7 elements
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(model.params[k].value.grad().raw()) % kPackBytes, 0u) << k;
    EXPECT_EQ(comm.ledger().total().payload_bytes, 4 * kDenseElements);
  });
}

TEST(GradientBuckets, OfARankAloneStayWhereTheyAre) {
  const auto comm = make_self_comm();
  Model model;
  Tensor kept;  // what a method makes of a gradient takes its way through a bucket all the same
  std::vector<BucketItem> items;
  for (Param& p : model.params) items.push_back({&p, p.numel()});
  items.back().elements = 1;
  items.back().pack = [](const Tensor& gradient, const Tensor& place) { place.copy_from(gradient.slice(0, 1)); };
  items.back().unpack = [&kept](const Tensor& place) { kept = place.clone(); };
  GradientBuckets buckets(items, *comm, ReduceOp::mean, {.dtype = DType::bfloat16});
  for (int step = 0; step < 2; ++step) {
    for (Param& p : model.params) p.value.clear_grad();
    backward_over(model, {0, 1, 3, 4}, 0.1f);
    const void* const place = model.params[1].value.grad().raw();
    buckets.finish();
    EXPECT_EQ(model.params[1].value.grad().raw(), place);
    expect_grads(model, [](int k) { return k == 2 ? 0.0 : k - 0.1f; });  // not rounded to 16 bits
    EXPECT_EQ(kept.to_doubles(), cast(cast(Tensor::scalar(4 - 0.1f), DType::bfloat16), DType::float32).to_doubles());
  }
  EXPECT_EQ(buckets.results().size(), 5u);
  EXPECT_EQ(calls(*comm), 2);
  EXPECT_EQ(comm->ledger().total().payload_bytes, 2 * 2 * (kDenseElements - 7 + 1));
  EXPECT_EQ(comm->ledger().total().wire_bytes(), 0);
}

TEST(GradientBuckets, SendSixteenBitsAndReturnFloat32) {
  for (const DType wire : {DType::bfloat16, DType::float16})
    run_thread_ranks(3, {}, [wire](Comm& comm) {
      Model model;
      GradientBuckets buckets(model.list(), comm, ReduceOp::mean, {.bucket_bytes = 160, .dtype = wire});
      comm.ledger().set_phase("buckets");
      backward_over(model, kForward, 1.0f / 3 + 0.1f * static_cast<float>(comm.rank()));
      std::vector<std::vector<double>> expected;
      for (Param* p : model.list()) {
        // Each rank's gradient rounded, the mean taken in float32 and rounded again.
        const Tensor rounded = cast(cast(p->value.grad(), wire), DType::float32);
        comm.ledger().set_phase("check");
        comm.all_reduce(rounded, ReduceOp::mean);
        expected.push_back(cast(rounded, wire).to_doubles());
      }
      buckets.finish();
      std::int64_t elements = 0;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        const Tensor grad = model.list()[i]->value.grad();
        EXPECT_EQ(grad.dtype(), DType::float32);
        EXPECT_EQ(grad.to_doubles(), expected[i]);
        elements += grad.numel();
      }
      EXPECT_EQ(comm.ledger().total_of_phase("buckets").payload_bytes, 2 * elements);
    });
}

TEST(GradientBuckets, AreFilledFromTheLastParameterOn) {
  const auto comm = make_self_comm();
  Model model;
  EXPECT_FALSE(GradientBuckets(model.list(), *comm, ReduceOp::mean, {.bucket_bytes = 1}).leave_in_backward());
  const auto count = [&](std::int64_t bytes) {
    return GradientBuckets(model.list(), *comm, ReduceOp::mean, {.bucket_bytes = bytes}).bucket_count();
  };
  EXPECT_EQ(count(1), 5u);    // one each
  EXPECT_EQ(count(188), 4u);  // {w4 w3} {w2} {w1} {w0}: w2 would make 192 bytes
  EXPECT_EQ(count(192), 3u);  // {w4 w3 w2} {w1} {w0}
  EXPECT_EQ(count(412), 2u);  // {w4 w3 w2} {w1 w0}
  EXPECT_EQ(count(4 * kDenseElements), 1u);
  model.params[3].value.set_requires_grad(false);
  EXPECT_EQ(count(1), 4u);
  EXPECT_THROW(count(0), Error);
}

TEST(GradientBuckets, LeaveDuringBackwardAndInTheirOwnOrder) {
  run(2, [](Comm& comm) {
    Model model;
    EXPECT_FALSE(GradientBuckets(model.list(), comm).leave_in_backward()) << "one bucket is full at the end";
    GradientBuckets buckets(model.list(), comm, ReduceOp::mean, {.bucket_bytes = 1});
    EXPECT_TRUE(buckets.leave_in_backward());
    backward_over(model, kForward, 0);
    EXPECT_EQ(calls(comm), 5);  // all under way before finish()
    buckets.finish();
    EXPECT_EQ(calls(comm), 5);

    backward_over(model, {4, 0, 1, 2, 3}, 0);  // w4, the first bucket, comes last
    buckets.finish();
    backward_over(model, {0, 1, 2, 3}, 0);  // w4 does not come at all: everything waits for it
    EXPECT_EQ(calls(comm), 10);
    buckets.finish();
    EXPECT_EQ(calls(comm), 15);
    EXPECT_EQ(comm.ledger().total().payload_bytes, 3 * 4 * kDenseElements);
  });
}

TEST(GradientBuckets, ReuseTheirMemory) {
  run(2, [](Comm& comm) {
    Model model;
    GradientBuckets buckets(model.list(), comm);
    backward_over(model, kForward, 0);
    buckets.finish();
    const void* const first = model.params[1].value.grad().raw();
    for (Param& p : model.params) p.value.clear_grad();
    backward_over(model, kForward, 0);
    buckets.finish();
    EXPECT_EQ(model.params[1].value.grad().raw(), first);
  });
}

TEST(GradientBuckets, LeaveNoHooksBehind) {
  const auto comm = make_self_comm();
  Model model;
  { GradientBuckets buckets(model.list(), *comm); }
  backward_over(model, kForward, 0);
  EXPECT_EQ(calls(*comm), 0);
}

TEST(GradientBuckets, RefuseASecondBackwardAndAChangedShape) {
  const auto comm = make_self_comm();
  Model model;
  GradientBuckets buckets(model.list(), *comm);
  backward_over(model, kForward, 0);
  EXPECT_THROW(backward_over(model, kForward, 0), Error);
  buckets.finish();
  model.params[2].value.set_value(Tensor::zeros(Shape{2}));
  model.params[2].value.clear_grad();
  EXPECT_THROW(buckets.finish(), Error);
}

TEST_P(OnRanks, FlatCollectivesTakeTensorsOfSeveralTypes) {
  run(GetParam(), [](Comm& comm) {
    const std::vector<Tensor> tensors = {Tensor::scalar(comm.rank()), Tensor::scalar(10 * comm.rank(), DType::float64),
                                         Tensor::scalar(comm.rank() + 1)};
    all_reduce_flat(comm, tensors, ReduceOp::max);
    EXPECT_EQ(tensors[0].item(), comm.size() - 1);
    EXPECT_EQ(tensors[1].item(), 10 * (comm.size() - 1));
    EXPECT_EQ(tensors[2].item(), comm.size());
    EXPECT_EQ(calls(comm), 2);  // one per type
    all_reduce_flat(comm, {}, ReduceOp::mean);
    EXPECT_EQ(calls(comm), 2);
  });
}

TEST_P(OnRanks, DenseStartsFromRankZeroAndTrainsLikeOneRankOnAllData) {
  run(GetParam(), [](Comm& comm) {
    Model model(comm.rank() * 5.0);  // ranks disagree before the strategy is made
    const Tensor mean = Tensor::scalar(comm.rank() * 3.0);
    // Plain gradient descent, so that what is expected can be computed by hand.
    const auto descent = make_sgd(model.list(), {.momentum = 0, .weight_decay = 0});
    DenseStrategy strategy({model.list(), {mean}}, comm, {.bucket_bytes = 160});
    TrainState state{.optimizer = *descent};
    EXPECT_EQ(strategy.phase(), "full");
    comm.ledger().set_phase(strategy.phase());  // as the training loop does before every step
    EXPECT_EQ(comm.ledger().total_of_phase("setup").payload_bytes, 4 * (kDenseElements + 1));
    EXPECT_EQ(mean.item(), 0);

    constexpr int kSteps = 4;
    for (; state.step < kSteps; ++state.step) {
      descent->clear_grads();
      backward_over(model, kForward, static_cast<float>(comm.rank()));
      strategy.finish_grads(state);
      descent->step(0.5);
      strategy.after_step(state);
    }
    EXPECT_EQ(comm.ledger().total_of_phase("full").payload_bytes, kSteps * 4 * kDenseElements);

    // Each step halves the distance to the mean target: w = m + (k − m) / 2^steps.
    std::vector<float> everything;
    for (int k = 0; const Param& p : model.params) {
      const double m = mean_target(comm);
      for (const float w : p.value.value().span<float>()) {
        ASSERT_FLOAT_EQ(w, static_cast<float>(m + (k - m) / 16));
        everything.push_back(w);
      }
      ++k;
    }
    const Tensor mine = Tensor::from(everything, Shape{kDenseElements}), all(Shape{comm.size(), kDenseElements});
    comm.all_gather(mine, all);
    for (int r = 0; r < comm.size(); ++r)
      EXPECT_EQ(std::memcmp(all.slice(r, r + 1).raw(), mine.raw(), mine.bytes()), 0);
  });
}

// A weight of 512×4608 and 512 biases over 4 ranks: 2 · 3/4 · 4 bytes each, or half of that.
TEST(DenseStrategy, SendsTheBytesOfItsGradients) {
  for (const auto& [wire, bytes] : {std::pair{DType::float32, 14'158'848.0}, {DType::bfloat16, 7'079'424.0}})
    run(4, [wire = wire, bytes = bytes](Comm& comm) {
      Param weight{"weight", Var(Tensor::zeros({512, 4608}), true)}, bias{"bias", Var(Tensor::zeros({512}), true)};
      const auto optimizer = make_sgd({&weight, &bias}, {});
      DenseStrategy strategy({{&weight, &bias}}, comm, {.dtype = wire});
      TrainState state{.optimizer = *optimizer};
      comm.ledger().set_phase("step");
      for (Param* param : {&weight, &bias}) param->value.set_grad(Tensor::zeros(param->value.shape()));
      strategy.finish_grads(state);
      EXPECT_DOUBLE_EQ(comm.ledger().total_of_phase("step").wire_bytes(), bytes);
    });
}

TEST_P(OnRanks, DenseAveragesBuffersForEvaluationAndAtTheEnd) {
  run(GetParam(), [](Comm& comm) {
    Model model;
    const Tensor running_mean(Shape{4}), running_variance(Shape{4});
    const auto drift = [&](float by) {
      std::fill_n(running_mean.data<float>(), 4, by * static_cast<float>(comm.rank()));
      std::fill_n(running_variance.data<float>(), 4, 7.0f);
    };
    const auto optimizer = make_sgd(model.list(), {});
    running_mean.set_zero();
    running_variance.set_zero();
    DenseStrategy strategy({model.list(), {running_mean, running_variance}}, comm);
    TrainState state{.optimizer = *optimizer};
    const std::int64_t before = calls(comm);
    drift(1);
    strategy.begin_evaluation(state);
    EXPECT_EQ(calls(comm), before + 1);
    EXPECT_FLOAT_EQ(running_mean.data<float>()[3], static_cast<float>(mean_target(comm)));
    EXPECT_EQ(running_variance.data<float>()[0], 7);
    strategy.end_evaluation(state);
    drift(2);
    strategy.finish(state);
    EXPECT_EQ(calls(comm), before + 2);
    EXPECT_FLOAT_EQ(running_mean.data<float>()[3], static_cast<float>(2 * mean_target(comm)));
  });
}

}  // namespace
}  // namespace ab
