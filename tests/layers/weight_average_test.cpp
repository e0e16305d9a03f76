// SPDX-License-Identifier: MIT
//
// The moving average of weights against its formula.
#include "layers/model_state.h"

#include <gtest/gtest.h>

#include "engine/kernels/elementwise.h"
#include "layers/models/models.h"
#include "layers/weight.h"

namespace ab {
namespace {

std::unique_ptr<Layer> small_model() { return make_model({.name = "mlp", .width = 0.01, .seed = 3}); }

void set_all(Layer& model, double value) {
  for (const Param* p : inventory_of(model).params) fill(p->value.value(), value);
}

void expect_all(Layer& model, double value) {
  for (const Param* p : inventory_of(model).params)
    for (const double v : p->value.value().to_doubles()) ASSERT_NEAR(v, value, 1e-6) << p->name;
}

TEST(WeightAverage, FollowsItsFormula) {
  const auto trained = small_model();
  set_all(*trained, 8);
  WeightAverage average(small_model(), *trained, 0.5);
  expect_all(average.model(*trained), 8);  // starts with the values of the trained model
  set_all(*trained, 0);
  average.update(*trained);
  expect_all(average.model(*trained), 4);
}

TEST(WeightAverage, UpdatesThatWereWaitedForCount) {
  const auto trained = small_model();
  set_all(*trained, 16);
  WeightAverage average(small_model(), *trained, 0.5);
  set_all(*trained, 0);
  average.wait();
  average.wait();
  expect_all(average.model(*trained), 16);
  average.catch_up(*trained);
  expect_all(average.model(*trained), 4);  // two updates
  average.wait();
  average.update(*trained);
  expect_all(average.model(*trained), 1);  // and two more
}

TEST(WeightAverage, AFactoredWeightCountsAsItsProduct) {
  const auto trained = small_model();
  set_all(*trained, 2);
  WeightAverage average(small_model(), *trained, 0.0);
  Weight& weight = *inventory_of(*trained).weights[1];
  const Tensor outer({weight.rows(), 1}), inner({1, weight.columns()});
  fill(outer, 2), fill(inner, 3);
  weight.factorise(outer, inner, Weight::Mode::train_a);
  average.update(*trained);
  for (const Param* p : inventory_of(average.model(*trained)).params)
    for (const double v : p->value.value().to_doubles())
      ASSERT_NEAR(v, p->name == weight.name() ? 6 : 2, 1e-6) << p->name;
}

}  // namespace
}  // namespace ab
