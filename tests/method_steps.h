#pragma once
// SPDX-License-Identifier: MIT
//
// The small run in which every kind of step of a method occurs, and its steps without the program around them.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <sstream>

#include "apps/methods/method.h"
#include "apps/settings/config.h"
#include "apps/train/build_run.h"
#include "engine/core/random.h"
#include "engine/ops/loss.h"
#include "layers/model_state.h"
#include "layers/models/models.h"
#include "tests/method_laws.h"

namespace ab::test {

inline constexpr std::int64_t kSteps = 13, kTrainImages = 21, kTestImages = 7;

/// A method in one of its ways to train.
struct Variant {
  const Method* method;
  const MethodLaws* laws;
  std::string name() const {
    std::string name = *laws->variant ? fmt::format("{}_{}", method->name, laws->variant) : std::string(method->name);
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
  }
};

inline std::vector<Variant> all_variants() {
  std::vector<Variant> all;
  for (const Method& method : methods())
    for (const MethodLaws& laws : method_laws())
      if (method.name == std::string(laws.method)) all.push_back({&method, &laws});
  return all;
}

/// 13 steps of a small network with batch norm, in epochs of a few steps. `own`: settings of the method and of all runs, in
/// TOML.
inline TrainConfig small_run(const Method& method, const char* own, std::int64_t eval_every = 0) {
  std::string of_run, of_method;
  std::istringstream lines(own);
  for (std::string line; std::getline(lines, line);) {
    const std::string key = line.substr(0, line.find(' '));
    (find_setting(fmt::format("{}.{}", method.name, key)) ? of_method : of_run) += line + "\n";
  }
  if (!of_method.empty()) of_run += fmt::format("[{}]\n{}", method.name, of_method);
  TrainConfig config =
      resolve_config_text({{"method", method.name}}, of_run, "the laws of " + std::string(method.name));
  config.model = "resnet20";
  config.width = 0.25;
  config.image_size = 8;
  config.epochs = 0, config.steps = kSteps;
  config.batch_size = 2;
  config.lr = 0.02;
  config.comm_dtype = DType::float32;
  config.bucket_mb = 0.02;
  config.eval_every = eval_every;
  config.log_every = 1;
  config.augment = false;
  config.train_samples = kTrainImages, config.val_samples = kTestImages;
  std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
  std::replace(test.begin(), test.end(), '/', '_');
  config.out = testing::TempDir() + "abtrain_laws_" + method.name + "_" + test;
  return config;
}

/// The loss, except that its gradient is infinite.
inline Var overflowing(const Var& loss) {
  return record("overflow", loss.value(), {loss}, [](const Tensor& dy) {
    return Gradients{Tensor::scalar(std::numeric_limits<double>::infinity()).view(dy.shape())};
  });
}

/// One rank with what it trains, without the loop around it.
class Steps {
 public:
  Steps(const TrainConfig& config, Comm& world)
      : world_(world),
        model_(make_model(make_model_spec(config, 10, 8))),
        optimizer_(make_optimizer(config, inventory_of(*model_).params, &world)),
        schedule_(make_schedule(config, 5)),
        strategy_(make_strategy(find_method(config.method), config, *model_, world, schedule_)),
        state_{0, *optimizer_} {
    optimizer_->set_skip_overflow(true);
    strategy_->start(state_);
  }

  SyncStrategy& strategy() { return *strategy_; }
  TrainState& state() { return state_; }
  Layer& model() { return *model_; }
  std::int64_t done() const { return state_.step; }

  /// Returns the loss on this rank's images.
  double step(bool overflows = false) {
    world_.ledger().set_phase(strategy_->phase());
    optimizer_->clear_grads();
    const Tensor x(Shape{2, 8, 8, 3}), labels(Shape{2}, DType::int64);
    const Philox random{7, static_cast<std::uint64_t>(world_.rank())};
    for (std::int64_t i = 0; i < x.numel(); ++i)
      x.data<float>()[i] = random.uniform(static_cast<std::uint64_t>(state_.step * 1000 + i)) - 0.5f;
    for (int i = 0; i < 2; ++i) labels.data<std::int64_t>()[i] = (state_.step + 3 * world_.rank() + i) % 10;
    const Var loss = softmax_cross_entropy(model_->forward(Var(x)), labels);
    backward(overflows ? overflowing(loss) : loss);
    strategy_->finish_grads(state_);
    optimizer_->step(strategy_->learning_rate(schedule_.at(state_.step), state_.step));
    ++state_.step;
    strategy_->after_step(state_);
    return loss.value().item();
  }

  /// Everything that a checkpoint of this rank would hold.
  StateDict saved() {
    StateDict dict;
    save_model(*model_, dict);
    optimizer_->save(dict);
    strategy_->save(dict);
    return dict;
  }

 private:
  Comm& world_;
  std::unique_ptr<Layer> model_;
  std::unique_ptr<Optimizer> optimizer_;
  LrSchedule schedule_;
  std::unique_ptr<SyncStrategy> strategy_;
  TrainState state_;
};

}  // namespace ab::test
