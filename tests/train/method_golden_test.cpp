// SPDX-License-Identifier: MIT
//
// Every method against a program of its own in float64 that follows its publication (golden/methods): parameters of every
// rank, and what the method remembers (or its mean over ranks), after every update; PowerSGD also against PyTorch's hook. A new NAME.json in that folder is found by itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/methods/method.h"
#include "apps/settings/config.h"
#include "apps/train/build_run.h"
#include "engine/comm/launcher.h"
#include "engine/core/atomic_file.h"
#include "engine/core/threads.h"
#include "tests/golden/formula_init.h"

namespace ab {
namespace {

namespace fs = std::filesystem;

const fs::path kFolder = fs::path(AB_SOURCE_DIR) / "tests/golden/methods";

/// The three parameters of golden/methods/problem.py.
class GoldenModel final : public Layer {
 public:
  GoldenModel() {
    add("linear.weight", {6, 5}, ParamRole::weight);
    add("conv.weight", {4, 3, 3, 3}, ParamRole::weight);
    add("bias", {6}, ParamRole::vector);
  }
  Var forward(const Var& x) override { return x; }
  void list(Inventory& inventory) override {
    for (Param& p : params_) inventory.params.push_back(&p);
  }

  /// g = w/2 + u("NAME common STEP") + u("NAME rank RANK step STEP")/2
  void set_gradients(int rank, std::int64_t step) {
    for (Param& p : params_) {
      const Shape& shape = p.value.shape();
      const Tensor g = golden::uniform(fmt::format("{} common {}", p.name, step), shape);
      const Tensor own = golden::uniform(fmt::format("{} rank {} step {}", p.name, rank, step), shape, 0.5f);
      for (std::int64_t i = 0; i < g.numel(); ++i)
        g.data<float>()[i] += own.data<float>()[i] + p.value.value().data<float>()[i] / 2;
      p.value.set_grad(g);
      p.value.call_grad_ready_hook();
    }
  }

 private:
  void add(const char* name, const Shape& shape, ParamRole role) {
    params_.push_back({name, Var(golden::uniform(name, shape, 0.5f), true), role});
  }
  std::deque<Param> params_;
};

/// `expected`: one list of numbers for each rank, or one for all.
void expect_values(const nlohmann::json& expected, const Tensor& actual, int rank, const std::string& what) {
  const auto numbers =
      expected.at(expected.size() == 1 ? 0u : static_cast<std::size_t>(rank)).get<std::vector<double>>();
  const std::vector<double> values = actual.to_doubles();
  ASSERT_EQ(values.size(), numbers.size()) << what;
  double largest = 1;
  for (const double v : numbers) largest = std::max(largest, std::abs(v));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    ASSERT_NEAR(values[i], numbers[i], 2e-5 * largest) << what << "[" << i << "] of rank " << rank;
}

void run_rank(const nlohmann::json& golden, const TrainConfig& config, Comm& world) {
  set_compute_threads(1);
  GoldenModel model;
  const std::vector<Param*> params = inventory_of(model).params;
  const std::unique_ptr<Optimizer> optimizer = make_optimizer(config, params);
  const LrSchedule schedule = make_schedule(config, golden.value("steps_per_epoch", std::int64_t{1}));
  const std::unique_ptr<SyncStrategy> strategy =
      make_strategy(find_method(config.method), config, model, world, schedule);
  TrainState state{0, *optimizer};
  strategy->start(state);
  for (const nlohmann::json& after : golden.at("steps")) {
    world.ledger().set_phase(strategy->phase());
    optimizer->clear_grads();
    strategy->set_gradient_exchange(true);
    model.set_gradients(world.rank(), state.step);
    strategy->finish_grads(state);
    optimizer->step(strategy->learning_rate(schedule.at(state.step), state.step));
    ++state.step;
    strategy->after_step(state);
    const std::string when = fmt::format(" after update {}", state.step);
    for (const Param* p : params)
      expect_values(after.at("parameters").at(p->name), p->value.value(), world.rank(), p->name + when);
    StateDict saved;
    strategy->save(saved);
    for (const auto& [name, values] : after.at("state").items())
      expect_values(values, saved.tensor(name), world.rank(), name + when);
    const nlohmann::json means = after.value("mean_state", nlohmann::json::object());
    for (const auto& [name, values] : means.items()) {
      const Tensor mean = saved.tensor(name).clone();
      world.all_reduce(mean, ReduceOp::mean);
      expect_values(values, mean, world.rank(), "mean of " + name + when);
    }
    if (testing::Test::HasFailure()) return;  // at the same update on all ranks or not: the first is told anyway
  }
}

class MethodGolden : public testing::TestWithParam<std::string> {};

std::vector<std::string> stored_methods() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kFolder))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem());
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Stored, MethodGolden, testing::ValuesIn(stored_methods()),
                         [](const auto& info) { return info.param; });

TEST_P(MethodGolden, GoesAsItsPublicationSays) {
  const fs::path file = kFolder / (GetParam() + ".json");
  const nlohmann::json golden = nlohmann::json::parse(read_file(file, ErrorKind::data));
  const int ranks = golden.at("ranks"), ranks_per_node = golden.at("ranks_per_node");
  TrainConfig config = resolve_config_text({}, golden.at("config"), file);
  config.epochs = 0;
  config.ranks_per_node = ranks_per_node;
  run_thread_ranks(ranks, {.ranks_per_node = ranks_per_node, .timeout = std::chrono::seconds(20)},
                   [&](Comm& world) { run_rank(golden, config, world); });
}

TEST(MethodGoldenFolder, HasAProgramForEveryFile) {
  ASSERT_FALSE(stored_methods().empty());
  for (const std::string& name : stored_methods()) EXPECT_TRUE(fs::exists(kFolder / (name + ".py"))) << name;
}

}  // namespace
}  // namespace ab
