// SPDX-License-Identifier: MIT
//
// The laws that every method of apps/methods keeps. A new one is held to them without a line here: its row in method_laws.h
// says in which small run every kind of step occurs and which settings make it data-parallel training.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <limits>
#include <mutex>
#include <numeric>
#include <set>

#include "apps/plan/plan.h"
#include "apps/settings/config.h"
#include "apps/settings/hardware.h"
#include "apps/train/build_run.h"
#include "apps/train/run_folder.h"
#include "apps/train/train_loop.h"
#include "engine/comm/launcher.h"
#include "engine/core/threads.h"
#include "engine/sync/dense.h"
#include "engine/sync/replica_strategy.h"
#include "layers/model_state.h"
#include "layers/weight.h"
#include "tests/method_steps.h"
#include "tests/program_test.h"
#include "tests/striped_images.h"

namespace ab {
namespace {

namespace fs = std::filesystem;

using test::all_variants, test::kSteps, test::kTrainImages, test::kTestImages, test::MethodLaws, test::small_run,
    test::Steps, test::Variant;

const TrainAndTest& images() {
  static const TrainAndTest set{std::make_shared<ImageSet>(test::striped_images(kTrainImages, 1)),
                                std::make_shared<ImageSet>(test::striped_images(kTestImages, 2))};
  return set;
}

std::vector<Tensor> tensors_of(Layer& model) {
  std::vector<Tensor> tensors;
  for (const Param* p : inventory_of(model).params) tensors.push_back(p->value.value());
  for (const Buffer& buffer : inventory_of(model).buffers) tensors.push_back(buffer.value);
  return tensors;
}

std::vector<double> values_of(const std::vector<Tensor>& tensors) {
  std::vector<double> values;
  for (const Tensor& tensor : tensors)
    for (const double v : tensor.to_doubles()) values.push_back(v);
  return values;
}

struct LawOutcome {
  Summary summary;
  std::map<std::int64_t, double> losses;  ///< of rank 0, by step
  std::vector<double> validations;
  std::vector<std::vector<double>> models;  ///< of every rank
};

/// What rank `world` does in a run by the program's own loop, from the newest checkpoint in `from` if there is one.
void train_rank(const TrainConfig& config, Comm& world, LawOutcome& outcome, const std::string& from = "") {
  set_compute_threads(1);
  std::optional<Checkpoint> checkpoint;
  if (!from.empty()) checkpoint = load_newest_checkpoint(from, world);
  // The program's comparisons of settings and images, which a plan counts: 8 bytes a rank each.
  for (int i = 0; i < 2 && !checkpoint; ++i)
    world.all_gather(Tensor::zeros({1}, DType::int64), Tensor({world.size()}, DType::int64));
  TrainListener listener;
  listener.on_step = [&](const StepMetrics& m, std::int64_t) { outcome.losses[m.step] = m.loss; };
  listener.on_epoch = [&](const EpochMetrics& m) { outcome.validations.push_back(m.val_loss); };
  const TrainResult result = train(config, world, images(), listener, std::move(checkpoint));
  if (world.rank() == 0 && !config.out.empty()) remove_last_checkpoint(config, result.summary.steps);
  world.barrier();
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  outcome.models.resize(static_cast<std::size_t>(world.size()));
  outcome.models[static_cast<std::size_t>(world.rank())] = values_of(tensors_of(*result.model));
  if (world.rank() == 0) outcome.summary = result.summary;
}

LawOutcome train_on_threads(const TrainConfig& config, int ranks, const std::string& from = "") {
  LawOutcome outcome;
  run_thread_ranks(ranks, {.ranks_per_node = config.ranks_per_node, .wiring = run_wiring(config)},
                   [&](Comm& world) { train_rank(config, world, outcome, from); });
  return outcome;
}

/// Data-parallel training, trained once for all methods that are compared with it.
const LawOutcome& baseline(int ranks, std::int64_t steps) {
  static std::map<std::pair<int, std::int64_t>, LawOutcome> trained;
  const auto [it, is_new] = trained.try_emplace({ranks, steps});
  if (is_new) {
    TrainConfig config = small_run(find_method(kBaseline), "");
    config.steps = steps;
    it->second = train_on_threads(config, ranks);
  }
  return it->second;
}

void expect_one_finite_model(const LawOutcome& outcome) {
  for (const std::vector<double>& model : outcome.models) EXPECT_TRUE(model == outcome.models[0]);
  for (const double v : outcome.models[0]) ASSERT_TRUE(std::isfinite(v));
}

/// Gradients of 16 bits, every algorithm of the all-reduce and a shaped network, in as few runs as cover their pairs.
void use_a_different_wire(TrainConfig& config, int ranks) {
  constexpr AllReduce kAlgorithms[] = {AllReduce::ring, AllReduce::automatic, AllReduce::tree, AllReduce::two_level,
                                       AllReduce::automatic};
  config.all_reduce = kAlgorithms[ranks - 1];
  config.comm_dtype = ranks % 2 == 0 ? DType::bfloat16 : DType::float16;
  if (ranks == 4) config.network = "latency=10us,bandwidth=20Gbps,node-latency=1us; from 3: latency=30us";
  if (ranks == 5) config.network = "bandwidth=20Gbps";  // what it leaves unsaid decides for so few bytes
}

/// Fails unless every kind of step of the method has occurred.
void expect_all_kinds(const Method& method, const MethodLaws& laws, const Summary& summary) {
  for (const char* phase : laws.phases)
    EXPECT_TRUE(summary.steps_by_phase.contains(phase) || summary.wire_bytes_per_rank_by_phase.contains(phase))
        << method.name << ": the small run has no '" << phase << "'";
  for (const auto& [phase, steps] : summary.steps_by_phase)
    EXPECT_TRUE(std::count_if(laws.phases.begin(), laws.phases.end(),
                              [&name = phase](const char* known) { return name == known; }))
        << method.name << " does not name its phase '" << phase << "'";
}

class Laws : public testing::TestWithParam<Variant> {
 protected:
  const Method& method() const { return *GetParam().method; }
  const MethodLaws& laws() const { return *GetParam().laws; }
};

INSTANTIATE_TEST_SUITE_P(Methods, Laws, testing::ValuesIn(all_variants()),
                         [](const auto& info) { return info.param.name(); });

TEST(LawsTable, HasRowsForEveryMethodAndForNothingElse) {
  std::set<std::string> known, with_rows;
  for (const Method& method : methods()) known.insert(method.name);
  for (const MethodLaws& laws : test::method_laws()) with_rows.insert(laws.method);
  EXPECT_EQ(with_rows, known) << "tests/method_laws.h";
}

TEST_P(Laws, ItsNameAloneTrainsOnAnyWorld) {
  const TrainConfig config = resolve_config_text({{"method", method().name}}, "", "");
  for (int ranks = 1; ranks <= 5; ++ranks) EXPECT_NO_THROW(check_run(config, method(), ranks)) << ranks;
}

class LosslessLaws : public Laws {};

INSTANTIATE_TEST_SUITE_P(Methods, LosslessLaws, testing::ValuesIn([] {
                           std::vector<Variant> some = all_variants();
                           std::erase_if(some, [](const Variant& variant) { return !variant.laws->lossless; });
                           return some;
                         }()),
                         [](const auto& info) { return info.param.name(); });

TEST_P(LosslessLaws, AreThoseOfDataParallelTraining) {
  for (const int ranks : {1, 2, 5}) {
    SCOPED_TRACE(ranks);
    TrainConfig own = small_run(method(), laws().lossless);
    if (!laws().lossless_to_the_bit) own.steps = 5;  // what rounding does, more steps magnify
    const LawOutcome& dense = baseline(ranks, own.steps);
    const LawOutcome outcome = train_on_threads(own, ranks);
    if (laws().lossless_to_the_bit) {
      EXPECT_EQ(outcome.losses, dense.losses);
      EXPECT_TRUE(outcome.models[0] == dense.models[0]);
      continue;
    }
    for (const auto& [step, loss] : dense.losses) EXPECT_NEAR(outcome.losses.at(step), loss, 1e-4) << step;
    for (std::size_t i = 0; i < dense.models[0].size(); ++i)
      ASSERT_NEAR(outcome.models[0][i], dense.models[0][i], 1e-4) << i;
  }
}

TEST_P(Laws, ThePlanIsWhatRanksOneToFiveCount) {
  for (const int ranks_per_node : {0, 2})
    for (int ranks = 1; ranks <= 5; ++ranks) {
      if (ranks_per_node == 0 && ranks != 2 && ranks != 5) continue;  // the others say no more without nodes
      SCOPED_TRACE(fmt::format("{} ranks, {} on a node", ranks, ranks_per_node));
      TrainConfig config = small_run(method(), laws().small, 1);
      fs::remove_all(config.out);  // what a run that failed has left
      config.ranks_per_node = ranks_per_node;
      config.accumulate = 2;
      if (ranks_per_node > 0) use_a_different_wire(config, ranks);
      config.sync_bn = ranks == 4 ? SyncBn::group : ranks == 3 ? SyncBn::world : SyncBn::off;
      const LawOutcome outcome = train_on_threads(config, ranks);
      expect_one_finite_model(outcome);
      expect_all_kinds(method(), laws(), outcome.summary);
      const Summary& run = outcome.summary;
      if (ranks == 4) config.network.clear();  // a plan takes one, and without auto bytes do not depend on it
      const Summary plan = plan_run(config, {.world_size = ranks}).summary;
      EXPECT_EQ(plan.wire_bytes_per_rank_by_phase, run.wire_bytes_per_rank_by_phase);
      EXPECT_EQ(plan.wire_bytes_by_rank, run.wire_bytes_by_rank);
      EXPECT_EQ(plan.inter_node_bytes_per_rank_total, run.inter_node_bytes_per_rank_total);
      EXPECT_EQ(plan.sent_bytes_per_rank_total, run.sent_bytes_per_rank_total);
      EXPECT_EQ(plan.inter_node_sent_bytes_per_rank_total, run.inter_node_sent_bytes_per_rank_total);
      EXPECT_EQ(plan.steps_by_phase, run.steps_by_phase);
      EXPECT_EQ(plan.parameters_final, run.parameters_final);
      EXPECT_EQ(plan.per_layer, run.per_layer);
    }
}

// One run that saves after every step, and one from each of its checkpoints, which saves nothing.
TEST_P(Laws, StopAndResumeAtEveryKindOfStepIsBitForBit) {
  TrainConfig config = small_run(method(), laws().small, 1);
  config.ema_decay = 0.8;
  config.precision = "fp16";
  config.comm_dtype = DType::bfloat16;
  config.all_reduce = AllReduce::tree;
  config.save_every = 1;
  config.keep_checkpoints = 100;
  fs::remove_all(config.out);
  const LawOutcome whole = train_on_threads(config, 2);
  expect_all_kinds(method(), laws(), whole.summary);
  const std::string folder = in_folder(config.out, kCheckpointFolder), out = config.out;
  config.save_every = 0;
  config.out.clear();
  for (std::int64_t step = kSteps - 1; step > 0; --step) {
    fs::remove_all(fmt::format("{}/step_{:012}", folder, step + 1));
    const LawOutcome rest = train_on_threads(config, 2, folder);
    ASSERT_EQ(rest.losses.begin()->first, step + 1);
    for (const auto& [after, loss] : rest.losses) EXPECT_EQ(loss, whole.losses.at(after)) << step << ", " << after;
    EXPECT_TRUE(rest.models == whole.models) << step;
    EXPECT_EQ(rest.validations.back(), whole.validations.back()) << step;
    EXPECT_EQ(rest.summary.wire_bytes_per_rank_by_phase, whole.summary.wire_bytes_per_rank_by_phase) << step;
    EXPECT_EQ(rest.summary.steps_by_phase, whole.summary.steps_by_phase) << step;
  }
  fs::remove_all(out);
}

TEST_P(Laws, SharedRatesOfLarsAreThoseThatEveryRankWouldFind) {
  TrainConfig config = small_run(method(), laws().small);
  config.optimizer = "lars";
  config.lr = 0.5;
  config.lars_share_rates = true;
  if (!method().average || method().drifts) {
    EXPECT_THROW(check_run(config, method(), 2), Error);
    EXPECT_THROW(plan_run(config, {.world_size = 2}), Error);
    return;
  }
  for (const int ranks : {1, 3, 5}) {
    SCOPED_TRACE(ranks);
    const LawOutcome shared = train_on_threads(config, ranks);
    expect_one_finite_model(shared);
    EXPECT_EQ(plan_run(config, {.world_size = ranks}).summary.wire_bytes_by_rank, shared.summary.wire_bytes_by_rank);
    TrainConfig alone = config;
    alone.lars_share_rates = false;
    const LawOutcome each = train_on_threads(alone, ranks);
    EXPECT_EQ(shared.losses, each.losses);
    EXPECT_TRUE(shared.models == each.models);
    EXPECT_EQ(ranks > 1, shared.summary.wire_bytes_by_rank > each.summary.wire_bytes_by_rank);
  }
}

// --- Strategies step by step, on images that differ from rank to rank.

std::vector<Tensor> parameters_of(Layer& model) {
  std::vector<Tensor> values;
  for (const Param* p : inventory_of(model).params) values.push_back(p->value.value());
  return values;
}

void on_ranks(int ranks, const std::function<void(Comm&)>& body) {
  run_thread_ranks(ranks, {}, [&](Comm& world) {
    set_compute_threads(1);
    body(world);
  });
}

// A run that is evaluated after every step, beside one that never is.
TEST_P(Laws, ReplicasAreEqualWherePromisedAndAnEvaluationChangesNothing) {
  const TrainConfig config = small_run(method(), laws().small);
  for (const int ranks : {2, 5})
    on_ranks(ranks, [&](Comm& world) {
      Steps steps(config, world), plain(config, world);
      check_replicas(world, tensors_of(steps.model()), "at the start");
      while (steps.done() < kSteps) {
        EXPECT_EQ(steps.step(), plain.step()) << plain.done();
        if (steps.strategy().replicas_agree()) check_replicas(world, parameters_of(steps.model()), "after a step");
        steps.strategy().begin_evaluation(steps.state());
        check_replicas(world, tensors_of(steps.model()), "in an evaluation");
        steps.strategy().end_evaluation(steps.state());
        EXPECT_TRUE(values_of(parameters_of(steps.model())) == values_of(parameters_of(plain.model()))) << plain.done();
      }
      steps.strategy().finish(steps.state());
      steps.strategy().leave(steps.state());
      check_replicas(world, tensors_of(steps.model()), "at the end");
    });
}

// Every step overflows in one of three runs.
TEST_P(Laws, AnOverflowOnOneRankLeavesNothingBehind) {
  const TrainConfig config = small_run(method(), laws().small);
  for (std::int64_t first = 0; first < 3; ++first)
    on_ranks(4, [&](Comm& world) {
      Steps steps(config, world);
      while (steps.done() < kSteps) {
        const bool overflows = steps.done() % 3 == first;
        steps.step(overflows && world.rank() == 1);
        if (!overflows) continue;
        const StateDict saved = steps.saved();
        for (const auto& [name, tensor] : saved.tensors())
          for (const double v : tensor.to_doubles())
            ASSERT_TRUE(std::isfinite(v)) << name << " of rank " << world.rank() << " after step " << steps.done();
      }
      steps.strategy().finish(steps.state());
      steps.strategy().leave(steps.state());
      check_replicas(world, tensors_of(steps.model()), "after overflows");
    });
}

// --- The late cut lets other methods average gradients.

TEST(LateCut, EveryLowRankMethodSendsLessThanWholeGradientsOfFactors) {
  const auto bytes = [](const std::string& method) {
    const std::string own = "at = [0.4]\nrank_policy = \"ratio\"\nkeep = [0.25]\nlow_rank_method = \"" + method + "\"";
    TrainConfig config = small_run(find_method("late-cut"), own.c_str());
    config.width = 1;
    return plan_run(config, {.world_size = 4}).summary.wire_bytes_per_rank_by_phase.at("low-rank");
  };
  int compared = 0;
  for (const Method& method : methods()) {
    if (!method.average || method.name == std::string(kBaseline)) continue;
    EXPECT_LT(bytes(method.name), 0.9 * bytes(kBaseline)) << method.name;
    ++compared;
  }
  EXPECT_GE(compared, 6);
}

// Gradients averaged within nodes, weights and factors across them now and then.
TEST(LateCut, ByLocalAveragingOfNodesPlansWhatItSends) {
  TrainConfig config = small_run(find_method("late-cut"), "preset = \"nodes\"\nat = [0.4]\nrank_policy = \"ratio\"", 1);
  EXPECT_THROW(plan_run(config, {.world_size = 4}), Error) << "which nodes?";
  config.ranks_per_node = 2;
  const LawOutcome outcome = train_on_threads(config, 4);
  expect_one_finite_model(outcome);
  const Summary plan = plan_run(config, {.world_size = 4}).summary;
  EXPECT_EQ(plan.wire_bytes_per_rank_by_phase, outcome.summary.wire_bytes_per_rank_by_phase);
  EXPECT_EQ(plan.inter_node_bytes_per_rank_total, outcome.summary.inter_node_bytes_per_rank_total);
  EXPECT_LT(outcome.summary.inter_node_bytes_per_rank_total, 0.5 * outcome.summary.wire_bytes_per_rank_total);
}

// --- What a cut leaves.

TEST(Cuts, ReachConvolutionsInTheSmallRunsOfTheLaws) {
  const Method& late_cut = find_method("late-cut");
  std::map<std::string, ConvFactors> left;
  for (const MethodLaws& laws : test::method_laws()) {
    if (laws.method != std::string(late_cut.name)) continue;
    const TrainConfig config = small_run(late_cut, laws.small);
    run_thread_ranks(1, {.ranks_per_node = config.ranks_per_node, .wiring = run_wiring(config)}, [&](Comm& world) {
      set_compute_threads(1);
      const TrainResult result = train(config, world, images(), {});
      for (const Weight* weight : inventory_of(*result.model).weights)
        if (weight->factored() && weight->shape()[1] > 1) left[laws.variant] = weight->conv_factors();
    });
    fs::remove_all(config.out);
  }
  EXPECT_EQ(left, (std::map<std::string, ConvFactors>{{"acpsgd", ConvFactors::spatial},
                                                      {"sparse", ConvFactors::spatial},
                                                      {"local", ConvFactors::channel},
                                                      {"dense", ConvFactors::spatial}}));
}

// --- A replica that drifts.

/// Data-parallel training in which a bit of rank 1's memory flips after the third step.
class Flips final : public ReplicaStrategy {
 public:
  Flips(Replica replica, Comm& world)
      : ReplicaStrategy(std::move(replica), world), gradients_(this->replica().params, this->world(), ReduceOp::mean) {}
  std::string phase() const override { return "full"; }
  void set_gradient_exchange(bool on) override { gradients_.set_exchange(on); }
  void finish_grads(TrainState&) override { gradients_.finish(); }
  void after_step(TrainState& state) override {
    if (state.step != 3 || world().rank() != 1) return;
    std::uint32_t bits = 0;
    float* const value = replica().params[4]->value.value().data<float>();
    std::memcpy(&bits, value, sizeof bits);
    bits ^= 1;
    std::memcpy(value, &bits, sizeof bits);
  }

 private:
  GradientBuckets gradients_;
};

TEST(Replicas, AFlippedBitIsFoundBeforeTheNextCheckpointAndNamed) {
  Method method = find_method(kBaseline);
  method.make = [](const TrainConfig&, Layer& model, Comm& world, const LrSchedule&) -> std::unique_ptr<SyncStrategy> {
    return std::make_unique<Flips>(replica_of(model, false), world);
  };
  TrainConfig config = small_run(find_method(kBaseline), "");
  const std::string name = inventory_of(*make_model(make_model_spec(config, 10, 8))).params[4]->name;
  const auto message = [&] {
    return test::message_of(ErrorKind::numerics, [&] {
      run_thread_ranks(3, {}, [&](Comm& world) {
        set_compute_threads(1);
        train(config, world, images(), {}, {}, nullptr, &method);
      });
    });
  };
  fs::remove_all(config.out);
  const std::string first = fmt::format("the model of rank 1 differs from that of rank 0, first in {}, ", name);
  config.save_every = 5;
  EXPECT_TRUE(test::contains(message(), "after step 5 " + first)) << message();
  EXPECT_FALSE(fs::exists(in_folder(config.out, kCheckpointFolder)));
  config.save_every = 0, config.eval_every = 1;
  EXPECT_TRUE(test::contains(message(), "after step 3 " + first)) << message();
  fs::remove_all(config.out);
}

// --- The end of an epoch.

thread_local int first_epoch_followed = 1;

/// Data-parallel training that notes what it is told.
class Epochs final : public SyncStrategy {
 public:
  Epochs(Replica replica, Comm& world, std::vector<double>& losses)
      : dense_(std::move(replica), world), losses_(losses) {}

  std::string phase() const override { return dense_.phase(); }
  void set_gradient_exchange(bool on) override { dense_.set_gradient_exchange(on); }
  void finish_grads(TrainState& state) override { dense_.finish_grads(state); }
  void begin_evaluation(TrainState& state) override { dense_.begin_evaluation(state); }
  void finish(TrainState& state) override { dense_.finish(state); }
  bool follows_epochs() const override { return ++epochs_ >= first_epoch_followed; }
  void on_epoch_end(TrainState&, double mean_loss) override { losses_.push_back(mean_loss); }

 private:
  DenseStrategy dense_;
  std::vector<double>& losses_;
  mutable int epochs_ = 0;
};

thread_local std::vector<double> epoch_losses;

Method epochs_method() {
  Method method = find_method(kBaseline);
  method.name = "epochs";
  method.make = [](const TrainConfig&, Layer& model, Comm& world, const LrSchedule&) -> std::unique_ptr<SyncStrategy> {
    epoch_losses.clear();
    return std::make_unique<Epochs>(replica_of(model, false), world, epoch_losses);
  };
  return method;
}

TEST(EpochEnd, TellsTheMeanLossOverStepsAndRanks) {
  const Method method = epochs_method();
  TrainConfig config = small_run(find_method(kBaseline), "");
  config.out.clear();
  const std::int64_t per_epoch = kTrainImages / 2 / 2;  // batches of 2 on 2 ranks
  std::vector<std::vector<double>> told(2);
  std::vector<double> logged;
  run_thread_ranks(2, {}, [&](Comm& world) {
    set_compute_threads(1);
    TrainListener listener;
    listener.on_step = [&](const StepMetrics& m, std::int64_t) { logged.push_back(m.loss); };
    const TrainResult result = train(config, world, images(), listener, {}, nullptr, &method);
    EXPECT_EQ(result.summary.method, "epochs");
    told[static_cast<std::size_t>(world.rank())] = epoch_losses;
  });
  ASSERT_EQ(told[0].size(), static_cast<std::size_t>((kSteps + per_epoch - 1) / per_epoch));
  EXPECT_EQ(told[0], told[1]);
  // One rank alone knows all losses.
  std::vector<double> losses;
  TrainListener listener;
  listener.on_step = [&](const StepMetrics& m, std::int64_t) { losses.push_back(m.loss); };
  set_compute_threads(1);
  train(config, *make_self_comm(), images(), listener, {}, nullptr, &method);
  const std::size_t alone = kTrainImages / 2;
  ASSERT_EQ(epoch_losses.size(), 2u);
  double sum = 0;
  for (std::size_t i = 0; i < alone; ++i) sum += losses[i];
  EXPECT_NEAR(epoch_losses[0], sum / static_cast<double>(alone), 1e-12);
  // Of the epoch alone, also where those before it were not asked for.
  const double of_second = epoch_losses[1];
  first_epoch_followed = 2;
  train(config, *make_self_comm(), images(), {}, {}, nullptr, &method);
  first_epoch_followed = 1;
  EXPECT_EQ(epoch_losses, (std::vector<double>{of_second}));
  EXPECT_NEAR(told[0][0], std::accumulate(logged.begin(), logged.begin() + per_epoch, 0.0) / per_epoch, 1e-12)
      << "what is logged is of all ranks too";
}

// --- The program, and ranks as processes.

class LawsOfTheProgram : public test::ProgramTest {};

TEST_F(LawsOfTheProgram, AWorldThatCannotBeUsedIsExitTwoAndWritesNothing) {
  for (const Variant& variant : all_variants()) {
    if (!variant.laws->unusable_by_three) continue;
    const TrainConfig config = small_run(*variant.method, variant.laws->unusable_by_three);
    EXPECT_THROW(check_run(config, *variant.method, 3), Error) << variant.name();
    EXPECT_THROW(plan_run(config, {.world_size = 3}), Error) << variant.name();
    const char* const name = variant.method->name;
    write_file_atomically(path("run.toml"),
                          fmt::format("method = \"{}\"\n[{}]\n{}\n", name, name, variant.laws->unusable_by_three));
    expect_failure(tiny_train("out", fmt::format("--ranks 3 --config {}", path("run.toml"))), 2, "");
    EXPECT_FALSE(fs::exists(path("out"))) << variant.name();
  }
}

// ctest starts this with several processes; alone it has nothing to compare.
TEST(LawsOfProcesses, TrainAsThreadsDo) {
  if (!launched_by_mpi()) GTEST_SKIP() << "runs under mpirun";
  for (const Variant& variant : all_variants()) {
    SCOPED_TRACE(variant.name());
    TrainConfig config = small_run(*variant.method, variant.laws->small, 1);
    config.ranks_per_node = 2;
    const std::unique_ptr<Comm> world = make_mpi_comm({.ranks_per_node = 2});
    LawOutcome processes;
    train_rank(config, *world, processes);
    if (world->rank() != 0) continue;
    const LawOutcome threads = train_on_threads(config, world->size());
    EXPECT_EQ(processes.summary.wire_bytes_by_rank, threads.summary.wire_bytes_by_rank);
    EXPECT_EQ(processes.summary.wire_bytes_per_rank_by_phase, threads.summary.wire_bytes_per_rank_by_phase);
    for (const auto& [step, loss] : threads.losses) EXPECT_NEAR(processes.losses.at(step), loss, 1e-4) << step;
  }
}

}  // namespace
}  // namespace ab
