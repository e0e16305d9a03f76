// SPDX-License-Identifier: MIT
//
// The fused update: all parameters in one launch, clipping and overflow on the device; and the scale of the loss.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>

#include "engine/device/device.h"
#include "engine/kernels/lars.h"
#include "engine/optim/loss_scale.h"
#include "engine/optim/optimizer.h"
#include "tests/tensor_values.h"
#include "tests/thread_team.h"

namespace ab {
namespace {

using MakeOptimizer = std::function<std::unique_ptr<Optimizer>(std::vector<Param*>)>;
const MakeOptimizer kOptimizers[] = {
    [](auto params) { return make_sgd(params, {.momentum = 0.9, .weight_decay = 0.01, .nesterov = false}); },
    [](auto params) { return make_sgd(params, {.momentum = 0.9, .weight_decay = 0.01, .nesterov = true}); },
    [](auto params) { return make_adamw(params, {}); },
    [](auto params) { return make_lars(params, {.trust = 0.02}); },
};

/// Parameters of fewer elements than a slice has, of exactly as many, and of several slices.
struct Params {
  std::vector<Param> all;

  explicit Params(Device device = {}) {
    for (const std::int64_t n : {std::int64_t{3}, kSliceElements, 2 * kSliceElements + 77})
      all.push_back(
          {fmt::format("p{}", n), Var(normal_values({n, 1}, static_cast<std::uint64_t>(n)).to(device), true)});
  }
  std::vector<Param*> list() {
    std::vector<Param*> pointers;
    for (Param& p : all) pointers.push_back(&p);
    return pointers;
  }
  void set_grads(std::uint64_t step) {
    for (std::size_t i = 0; i < all.size(); ++i)
      all[i].value.set_grad(normal_values(all[i].value.shape(), 1000 * step + i).to(all[i].value.value().device()));
  }
  std::vector<std::vector<double>> values() const {
    std::vector<std::vector<double>> result;
    for (const Param& p : all) result.push_back(p.value.value().to_doubles());
    return result;
  }
};

TEST(FusedUpdate, EqualsOneLaunchForEachParameterBitForBit) {
  for (const MakeOptimizer& make : kOptimizers) {
    Params together, apart;
    const auto fused = make(together.list());
    std::vector<std::unique_ptr<Optimizer>> single;
    for (Param* p : apart.list()) single.push_back(make({p}));
    for (std::uint64_t step = 0; step < 4; ++step) {
      together.set_grads(step), apart.set_grads(step);
      if (step == 2) {  // a parameter that starts anew, and is not updated in every step
        fused->reset(together.all[1]), single[1]->reset(apart.all[1]);
        together.all[0].value.clear_grad(), apart.all[0].value.clear_grad();
      }
      fused->step(0.1);
      for (const auto& optimizer : single) optimizer->step(0.1);
      EXPECT_EQ(together.values(), apart.values()) << "step " << step;
    }
  }
}

TEST(DecayVectors, OffSparesThemAndDecaysMatrices) {
  for (const bool vectors_too : {true, false}) {
    Param matrix{"matrix", Var(Tensor::from<float>({1, 2, 3, 4}, {2, 2}), true)};
    Param vector{"vector", Var(Tensor::from<float>({5, 6}, {2}), true)};
    for (Param* p : {&matrix, &vector}) p->value.set_grad(Tensor::zeros(p->value.shape()));
    const auto sgd = make_sgd({&matrix, &vector}, {.momentum = 0, .weight_decay = 0.5});
    sgd->set_decay_vectors(vectors_too);
    sgd->step(0.2);
    EXPECT_FLOAT_EQ(matrix.value.value().data<float>()[3], 4 * 0.9f);
    EXPECT_FLOAT_EQ(vector.value.value().data<float>()[1], vectors_too ? 6 * 0.9f : 6);
  }
}

/// A matrix and a vector after three equal updates.
std::array<std::vector<double>, 2> moved(const MakeOptimizer& make, double learning_rate, double vector_rate) {
  Param matrix{"matrix", Var(Tensor::from<float>({1, 2, 3, 4}, {2, 2}), true)};
  Param vector{"vector", Var(Tensor::from<float>({5, 6}, {2}), true)};
  const auto optimizer = make({&matrix, &vector});
  optimizer->set_decay_vectors(false);
  optimizer->set_vector_rate(vector_rate);
  for (int step = 0; step < 3; ++step) {
    for (Param* p : {&matrix, &vector}) p->value.set_grad(normal_values(p->value.shape(), 7));
    optimizer->step(learning_rate);
  }
  return {matrix.value.value().to_doubles(), vector.value.value().to_doubles()};
}

TEST(VectorRate, MultipliesTheRateOfVectorsAlone) {
  for (const MakeOptimizer& make : kOptimizers) {
    const auto faster = moved(make, 0.01, 8);
    EXPECT_EQ(faster[0], moved(make, 0.01, 1)[0]);
    for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(faster[1][i], moved(make, 0.08, 1)[1][i], 1e-6);
  }
}

TEST(VectorRate, LeavesTheirDecayAsItIs) {
  for (const MakeOptimizer& make : kOptimizers) {
    std::vector<double> left;
    for (const double rate : {1.0, 8.0}) {
      Param vector{"vector", Var(Tensor::from<float>({5}, {1}), true)};
      vector.value.set_grad(Tensor::zeros({1}));
      const auto optimizer = make({&vector});
      optimizer->set_vector_rate(rate);
      optimizer->step(0.5);
      left.push_back(vector.value.value().item(0));
    }
    EXPECT_LT(left[0], 5);
    EXPECT_NEAR(left[1], left[0], 1e-6);
  }
}

TEST(FusedUpdate, AGpuMovesAsACpuDoes) {
  if (cuda_device_count() == 0) GTEST_SKIP() << cuda_unavailable_reason();
  for (const MakeOptimizer& make : kOptimizers) {
    Params here, there({DeviceKind::cuda, 0});
    const auto on_cpu = make(here.list()), on_gpu = make(there.list());
    for (std::uint64_t step = 0; step < 2; ++step) {
      here.set_grads(step), there.set_grads(step);
      on_cpu->step(0.1), on_gpu->step(0.1);
    }
    const auto expected = here.values(), got = there.values();
    for (std::size_t i = 0; i < got.size(); ++i)
      for (std::size_t j = 0; j < got[i].size(); ++j) ASSERT_NEAR(got[i][j], expected[i][j], 1e-6) << i;
  }
}

TEST(FusedUpdate, MakesItsTableOnlyWhenSomethingMoves) {
  const Tensor value = normal_values({5000}, 1), grad = normal_values({5000}, 2), other = normal_values({5000}, 3);
  const auto slice = [&](const Tensor& g, std::int64_t updates) {
    return ParamSlice{.grad = g.data<float>(),
                      .value = value.data<float>(),
                      .first_moment = nullptr,
                      .second_moment = nullptr,
                      .count = 5000,
                      .updates = updates,
                      .weight_decay = 0};
  };
  UpdateTable table;
  table.hold({slice(grad, 8)}, Device{});
  EXPECT_EQ(table.slices().count, 2);
  const ParamSlice* const made = table.slices().slices;
  EXPECT_EQ(made[1].grad, grad.data<float>() + kSliceElements);
  EXPECT_EQ(made[1].count, 5000 - kSliceElements);
  table.hold({slice(grad, 9)}, Device{});
  EXPECT_EQ(table.slices().slices, made);
  EXPECT_EQ(made[0].updates + table.age(), 9);
  table.hold({slice(other, 10)}, Device{});
  EXPECT_EQ(table.age(), 0);
  EXPECT_EQ(table.slices().slices[0].grad, other.data<float>());
  EXPECT_EQ(table.slices().slices[0].updates, 10);
}

/// A table of two slices, the second of which is not full, and what an update of it leaves.
template <class Update, class Rule> std::vector<double> updated(const Rule& rule, int lanes) {
  const std::int64_t counts[] = {130, 47};
  const Tensor grad = normal_values({177}, 1), value = normal_values({177}, 2), first = normal_values({177}, 3);
  const Tensor second = Tensor::zeros({177});
  std::vector<ParamSlice> slices;
  for (const std::int64_t begin : {0, 130})
    slices.push_back({grad.data<float>() + begin, value.data<float>() + begin, first.data<float>() + begin,
                      second.data<float>() + begin, counts[begin / 130], 5, 0.1f});
  const kernels::UpdateSlices<Update, Rule> kernel{slices.data(), rule};
  if (lanes == 1) for_each_row(Device{}, 2, 130, kernel);
  else run_rows_in_threads(lanes, 2, kernel);
  std::vector<double> results = value.to_doubles();
  for (const Tensor& moment : {first, second})
    for (const double m : moment.to_doubles()) results.push_back(m);
  return results;
}

/// To rounding: a compiler may fuse a product and a sum in the loop of one team and not in that of another.
void expect_alike(const std::vector<double>& values, const std::vector<double>& expected) {
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(values[i], expected[i], 1e-6 * (1 + std::abs(expected[i]))) << i;
}

TEST(FusedUpdate, IsTheSameByATeamOfThreads) {
  const GradNorm norm{4.0, 0.5f};
  const SgdRule sgd{.learning_rate = 0.1f, .momentum = 0.9f, .nesterov = true, .norm = &norm};
  const AdamWRule adamw{.learning_rate = 0.1f, .epsilon = 1e-8f, .beta1 = 0.9, .beta2 = 0.99, .age = 3, .norm = &norm};
  for (const int lanes : {3, 32}) {
    expect_alike(updated<kernels::SgdUpdate>(sgd, lanes), updated<kernels::SgdUpdate>(sgd, 1));
    expect_alike(updated<kernels::AdamWUpdate>(adamw, lanes), updated<kernels::AdamWUpdate>(adamw, 1));
  }
}

/// The last updates of SGD with momentum, each at the rate of its tensor.
TEST(Lars, GoesAtTheRateOfEveryTensor) {
  const double trust = 0.02, momentum = 0.9, decay = 0.1, lr = 0.5;
  Params params;
  params.all.push_back({"bias", Var(normal_values({7}, 5), true)});
  const auto lars = make_lars(params.list(), {.momentum = momentum, .weight_decay = decay, .trust = trust});
  lars->set_max_grad_norm(3);  // clips
  std::vector<std::vector<double>> w = params.values(), v;
  for (const auto& values : w) v.emplace_back(values.size());
  const auto norm = [](const std::vector<double>& x) {
    double sum = 0;
    for (const double e : x) sum += e * e;
    return std::sqrt(sum);
  };
  for (std::uint64_t step = 0; step < 4; ++step) {
    params.set_grads(step);
    if (step == 2) params.all[1].value.clear_grad();
    if (step == 3) params.all[0].value.grad().set_zero();
    std::vector<std::vector<double>> g(w.size());
    double whole = 0;
    for (std::size_t i = 0; i < w.size(); ++i) {
      if (!params.all[i].value.grad().defined()) continue;
      g[i] = params.all[i].value.grad().to_doubles();
      whole += norm(g[i]) * norm(g[i]);
    }
    lars->step(lr);
    const double clip = 3 / (std::sqrt(whole) + 1e-6);
    for (std::size_t i = 0; i < w.size(); ++i) {
      if (g[i].empty()) continue;
      for (double& e : g[i]) e *= clip;
      const bool adapts = params.all[i].name != "bias" && norm(g[i]) > 0;
      const double rate = adapts ? trust * norm(w[i]) / (norm(g[i]) + decay * norm(w[i]) + 1e-9) : 1;
      for (std::size_t j = 0; j < w[i].size(); ++j) {
        v[i][j] = momentum * v[i][j] + rate * (g[i][j] + decay * w[i][j]);
        w[i][j] -= lr * v[i][j];
      }
    }
    const auto values = params.values();
    for (std::size_t i = 0; i < w.size(); ++i)
      for (std::size_t j = 0; j < w[i].size(); ++j) ASSERT_NEAR(values[i][j], w[i][j], 1e-5) << i << ", step " << step;
  }
}

TEST(Lars, IsTheSameByATeamOfThreads) {
  const auto updated = [](int lanes) {
    const Tensor grad = normal_values({177}, 1), value = normal_values({177}, 2), first = normal_values({177}, 3);
    std::vector<ParamSlice> slices;
    for (const std::int64_t begin : {0, 130})
      slices.push_back({grad.data<float>() + begin, value.data<float>() + begin, first.data<float>() + begin, nullptr,
                        begin ? 47 : 130, 5, 0.1f});
    const LarsTensor tensor{0, 2, 1};
    const std::int64_t tensor_of_slice[] = {0, 0};
    std::vector<double> squares(4, kNaN);
    float rate = 0;
    const LarsTable table{&tensor, tensor_of_slice, squares.data(), &rate};
    const LarsRule rule{.learning_rate = 0.1f, .momentum = 0.9f, .trust = 0.5, .epsilon = 1e-9, .norm = nullptr};
    run_rows_in_threads(lanes, 2, kernels::LarsSquares{slices.data(), squares.data(), 0});
    run_rows_in_threads(lanes, 1, kernels::LarsRate{slices.data(), table, rule, 0});
    run_rows_in_threads(lanes, 2, kernels::LarsUpdate{slices.data(), table, rule});
    std::vector<double> results = value.to_doubles();
    for (const double m : first.to_doubles()) results.push_back(m);
    results.push_back(rate);
    return results;
  };
  for (const int lanes : {3, 32}) expect_alike(updated(lanes), updated(1));
}

TEST(GradNorm, IsTheSameByATeamOfThreads) {
  const Tensor grad = normal_values({177}, 1);
  const std::vector<ParamSlice> slices{{grad.data<float>(), nullptr, nullptr, nullptr, 130, 0, 0},
                                       {grad.data<float>() + 130, nullptr, nullptr, nullptr, 47, 0, 0}};
  double expected = 0;
  for (const double g : grad.to_doubles()) expected += g * g;
  expected = std::sqrt(expected);
  for (const int lanes : {3, 32}) {
    std::vector<double> partial(2, kNaN);
    GradNorm result{kNaN, kNaN};
    run_rows_in_threads(lanes, 2, kernels::SliceSquares{slices.data(), partial.data()});
    run_rows_in_threads(lanes, 1, kernels::FinishNorm{partial.data(), 2, 2.0, &result});
    EXPECT_NEAR(result.norm, expected, 1e-12 * expected);
    EXPECT_FLOAT_EQ(result.scale, static_cast<float>(2.0 / expected));
  }
}

TEST(GradNorm, ThatIsNotFiniteIsAnErrorAndLeavesTheUpdateOut) {
  for (const float bad : {kNaN, -std::numeric_limits<float>::infinity()}) {
    Params params;
    const auto optimizer = make_sgd(params.list(), {});
    optimizer->set_max_grad_norm(1.0);
    params.set_grads(1);
    params.all[2].value.grad().data<float>()[kSliceElements + 5] = bad;
    const auto before = params.values();
    EXPECT_THROW(optimizer->step(0.1), Error);
    EXPECT_EQ(params.values(), before);
  }
}

TEST(SkippedUpdate, LeavesWeightsAndMomentsButCounts) {
  for (const MakeOptimizer& make : kOptimizers) {
    Params params;
    const auto optimizer = make(params.list());
    optimizer->set_skip_overflow(true);
    const auto moments = [&] {
      std::vector<std::vector<double>> all;
      for (const Param& p : params.all)
        for (const Tensor& m : {optimizer->state(p).first_moment, optimizer->state(p).second_moment})
          if (m.defined()) all.push_back(m.to_doubles());
      return all;
    };
    params.set_grads(1);
    optimizer->step(0.1);
    const auto values_before = params.values(), moments_before = moments();
    params.set_grads(2);
    params.all[0].value.grad().data<float>()[1] = kNaN;
    optimizer->step(0.1);
    EXPECT_FALSE(std::isfinite(grad_norm_of(optimizer->read_grad_norm())));
    EXPECT_EQ(params.values(), values_before);
    EXPECT_EQ(moments(), moments_before);
    EXPECT_EQ(optimizer->state(params.all[0]).updates, 2);
    params.set_grads(3);
    optimizer->step(0.1);
    EXPECT_TRUE(std::isfinite(grad_norm_of(optimizer->read_grad_norm())));
    EXPECT_NE(params.values(), values_before);
  }
}

/// What an optimizer tells of an update.
HostRead norm_of_update(bool overflow) {
  const GradNorm norm{overflow ? std::numeric_limits<double>::infinity() : 1.0, 0.0f};
  std::vector<std::uint8_t> bytes(sizeof norm);
  std::memcpy(bytes.data(), &norm, sizeof norm);
  return HostRead(Tensor::from(bytes, {sizeof norm}));
}

void update(LossScale& scale, std::initializer_list<bool> overflows) {
  for (const bool overflow : overflows) scale.update(norm_of_update(overflow));
}

TEST(LossScale, HalvesAfterAnOverflowAndDoublesAfterGoodSteps) {
  LossScale scale({.initial = 8, .growth_steps = 3, .floor = 2});
  update(scale, {false, false, true});
  EXPECT_EQ(scale.value(), 8) << "the last update has not been counted";
  update(scale, {true});
  EXPECT_EQ(scale.value(), 4);
  update(scale, {false});
  EXPECT_EQ(scale.value(), 4) << "an overflow of the old scale was counted against the new one";
  update(scale, {false, false});
  EXPECT_EQ(scale.value(), 4);
  update(scale, {false});
  EXPECT_EQ(scale.value(), 8);
}

TEST(LossScale, ThatIsTooLargeAtItsFloorIsAnError) {
  LossScale scale({.initial = 4, .growth_steps = 3, .floor = 2});
  update(scale, {true, true, true});
  EXPECT_EQ(scale.value(), 2);
  try {
    update(scale, {true});
    FAIL() << "went below the floor";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::numerics);
  }
}

TEST(FusedUpdate, GoesOnFromACheckpoint) {
  for (const MakeOptimizer& make : kOptimizers) {
    Params straight, resumed;
    for (Params* params : {&straight, &resumed}) {
      params->all.push_back({"vector", Var(normal_values({5}, 5), true)});
      auto optimizer = make(params->list());
      for (std::uint64_t step = 0; step < 4; ++step) {
        if (step == 2 && params == &resumed) {
          StateDict state;
          optimizer->save(state);
          optimizer = make(params->list());
          optimizer->load(state, params->list(), {});
        }
        params->set_grads(step);
        optimizer->step(0.01);
      }
    }
    EXPECT_EQ(resumed.values(), straight.values());
  }
}

TEST(LossScale, ContinuesFromACheckpoint) {
  const std::vector<bool> overflows{false, true,  true,  false, true, false, false,
                                    false, false, false, true,  true, false};
  std::vector<double> values;
  for (std::size_t saved = 0; saved <= overflows.size(); ++saved) {
    LossScale first({.initial = 8, .growth_steps = 2, .floor = 1}),
        then({.initial = 64, .growth_steps = 2, .floor = 1});
    std::vector<double> seen;
    for (std::size_t i = 0; i < overflows.size(); ++i) {
      if (i == saved) {
        StateDict state;
        first.save(state);
        then.load(state);
      }
      LossScale& scale = i < saved ? first : then;
      scale.update(norm_of_update(overflows[i]));
      seen.push_back(scale.value());
    }
    if (saved == 0) values = seen;
    else EXPECT_EQ(seen, values) << "saved after " << saved << " updates";
  }
  EXPECT_NE(*std::min_element(values.begin(), values.end()), *std::max_element(values.begin(), values.end()));
}

TEST(LossScale, IsTakenOffBeforeLeavesSeeTheGradient) {
  const auto gradient = [](double loss_scale, double& seen) {
    const Var w(Tensor::scalar(3.0), true);
    const Var loss = record("square", Tensor::scalar(9.0), {w}, [&seen](const Tensor& dy) {
      seen = dy.item();
      return Gradients{Tensor::scalar(6.0 * dy.item())};
    });
    backward(loss, 0.5, loss_scale);
    return w.grad().item();
  };
  double plain = 0, scaled = 0;
  EXPECT_EQ(gradient(1.0, plain), 3.0);
  EXPECT_EQ(gradient(1024.0, scaled), 3.0);
  EXPECT_EQ(scaled, 1024 * plain);
}

}  // namespace
}  // namespace ab
