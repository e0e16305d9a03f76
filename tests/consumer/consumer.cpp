// SPDX-License-Identifier: MIT
//
// One training step on two ranks: reaches into every room of the library and its vendor libraries.
#include <cstdio>

#include "ablowrank/groups/ab_strategy.h"
#include "engine/ops/loss.h"
#include "layers/models/models.h"

int main() {
  ab::run_thread_ranks(2, {}, [](ab::Comm& world) {
    const auto model = ab::make_model({.name = "resnet20", .classes = 10});
    const auto optimizer = ab::make_sgd(ab::inventory_of(*model).params, {.momentum = 0.9});
    ab::AbStrategy strategy(*model, world, ab::AbOptions{}, ab::LrSchedule{.peak = 0.1});
    ab::TrainState state{0, *optimizer};
    strategy.start(state);
    const ab::Var images(ab::Tensor::zeros({4, 32, 32, 3}));
    const ab::Tensor labels = ab::Tensor::zeros({4}, ab::DType::int64);
    const ab::Var loss = softmax_cross_entropy(model->forward(images), labels);
    backward(loss);
    strategy.finish_grads(state);
    optimizer->step(strategy.learning_rate(0.1, state.step));
    if (world.rank() == 0) std::printf("loss %.3f\n", loss.value().item());
  });
}
