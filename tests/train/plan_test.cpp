// SPDX-License-Identifier: MIT
//
// A plan of a run against the run: every byte figure of plan_run() equals, as a double, what train() counts.
#include <gtest/gtest.h>

#include <functional>

#include "ablowrank/ab_plan.h"
#include "ablowrank/groups/ab_strategy.h"
#include "ablowrank/split.h"
#include "apps/methods/ab.h"
#include "apps/plan/plan.h"
#include "apps/train/build_run.h"
#include "apps/train/run_folder.h"
#include "apps/train/train_loop.h"
#include "engine/core/threads.h"
#include "engine/ops/loss.h"
#include "engine/ops/norm.h"
#include "layers/weight_average.h"
#include "tests/program_test.h"
#include "tests/striped_images.h"

namespace ab {
namespace {

constexpr std::int64_t kTrainImages = 60, kTestImages = 13;

const TrainAndTest& data() {
  static const TrainAndTest set{std::make_shared<ImageSet>(ab::testing::striped_images(kTrainImages, 1)),
                                std::make_shared<ImageSet>(ab::testing::striped_images(kTestImages, 2))};
  return set;
}

/// mlp with 16 hidden units: no buffers, square weights. Three warm-up steps, cycles of five with two at full
/// rank.
TrainConfig tiny_run(const std::string& method, std::int64_t steps) {
  TrainConfig config;
  config.model = "mlp";
  config.width = 1.0 / 32;
  config.dataset = "synthetic";
  config.train_samples = kTrainImages;
  config.val_samples = kTestImages;
  config.method = method;
  config.steps = steps;
  config.batch_size = 3;
  config.lr = 1e-4;
  config.bucket_mb = 0.002;
  config.eval_every = 0;
  ab_settings(config).schedule.first_split = 3;
  ab_settings(config).schedule.cycle_steps = 5;
  ab_settings(config).schedule.full_rank_steps = 2;
  ab_settings(config).rank_policy.ratio = 0.3;
  return config;
}

/// ResNet-20 with 4, 8 and 16 channels: buffers, and weights of both orientations.
TrainConfig convolutions(TrainConfig config) {
  config.model = "resnet20";
  config.width = 0.25;
  config.batch_size = 1;
  config.train_samples = 12;
  return config;
}

Summary trained(const TrainConfig& config, int ranks, int ranks_per_node) {
  const auto first = [](const std::shared_ptr<const Dataset>& set, std::int64_t n) {
    return std::make_shared<ImageSet>(first_images(dynamic_cast<const ImageSet&>(*set), n));
  };
  const TrainAndTest images{first(data().train, config.train_samples), first(data().test, config.val_samples)};
  Summary summary;
  run_thread_ranks(ranks, {.ranks_per_node = ranks_per_node}, [&](Comm& world) {
    set_compute_threads(1);
    // The program's comparisons of settings and images, 8 bytes a rank each; CliPlanTest has the real ones.
    for (int i = 0; i < 2; ++i)
      world.all_gather(Tensor::zeros({1}, DType::int64), Tensor({world.size()}, DType::int64));
    const TrainResult result = train(config, world, images, {});
    if (world.rank() == 0) summary = result.summary;
  });
  return summary;
}

void expect_plan_equals_run(TrainConfig config, int ranks, int ranks_per_node = 0) {
  SCOPED_TRACE(fmt::format("{} {}: {} ranks, {} per node, {} steps", config.model, config.method, ranks, ranks_per_node,
                           config.steps));
  config.ranks_per_node = ranks_per_node;
  const Summary run = trained(config, ranks, ranks_per_node);
  const RunPlan plan = plan_run(config, {.world_size = ranks});
  EXPECT_EQ(plan.summary.wire_bytes_per_rank_by_phase, run.wire_bytes_per_rank_by_phase);
  EXPECT_EQ(plan.summary.wire_bytes_by_rank, run.wire_bytes_by_rank);
  EXPECT_EQ(plan.summary.wire_bytes_per_rank_total, run.wire_bytes_per_rank_total);
  EXPECT_EQ(plan.summary.inter_node_bytes_per_rank_total, run.inter_node_bytes_per_rank_total);
  EXPECT_EQ(plan.summary.steps_by_phase, run.steps_by_phase);
  EXPECT_EQ(plan.summary.steps, run.steps);
  EXPECT_EQ(plan.summary.epochs, run.epochs);
  EXPECT_EQ(plan.summary.world_size, run.world_size);
  EXPECT_EQ(plan.summary.val_samples, run.val_samples);
  EXPECT_EQ(plan.summary.parameters_full, run.parameters_full);
  EXPECT_EQ(plan.summary.parameters_final, run.parameters_final);
  EXPECT_EQ(plan.summary.compression_ratio, run.compression_ratio);
  EXPECT_EQ(plan.summary.per_layer, run.per_layer);
  EXPECT_EQ(run.inter_node_bytes_per_rank_total > 0, ranks_per_node > 0 && ranks > ranks_per_node);
}

class RanksAndNodes : public ::testing::TestWithParam<std::pair<int, int>> {};

TEST_P(RanksAndNodes, DenseRunsArePlannedToTheByte) {
  const auto [ranks, per_node] = GetParam();
  TrainConfig config = tiny_run("dense", 9);
  expect_plan_equals_run(config, ranks, per_node);
  config.eval_every = 1;
  config.steps = 0;
  config.epochs = 2;
  expect_plan_equals_run(config, ranks, per_node);
  expect_plan_equals_run(convolutions(config), ranks, per_node);
}

// The run ends in the warm-up (2), at the first split (3), amid factors (5), at a synchronisation (6), in the
// rebound (7), at the next split (8), and in the second low-rank phase (10).
TEST_P(RanksAndNodes, AbRunsArePlannedToTheByteWhereverTheyEnd) {
  const auto [ranks, per_node] = GetParam();
  for (const std::int64_t steps : {2, 3, 5, 6, 7, 8, 10}) {
    TrainConfig config = tiny_run("ab", steps);
    expect_plan_equals_run(config, ranks, per_node);
    config.batch_size = 7;  // epochs of 1 to 8 steps, a validation after every other one
    config.eval_every = 2;
    ab_settings(config).final_model = FinalModel::dense;
    expect_plan_equals_run(config, ranks, per_node);
  }
}

TEST_P(RanksAndNodes, ConvolutionsWithBuffersArePlannedToTheByte) {
  const auto [ranks, per_node] = GetParam();
  for (const std::int64_t steps : {4, 7}) {
    TrainConfig config = convolutions(tiny_run("ab", steps));
    config.eval_every = 1;
    expect_plan_equals_run(config, ranks, per_node);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RanksAndNodes,
                         ::testing::Values(std::pair{1, 0}, std::pair{2, 0}, std::pair{2, 2}, std::pair{4, 0},
                                           std::pair{4, 2}, std::pair{4, 3}, std::pair{5, 0}, std::pair{5, 2},
                                           std::pair{5, 3}));

struct Variant {
  const char* name;
  std::function<void(TrainConfig& config, AbSettings& ab)> change;
};

void set_sync(TrainConfig& c, SyncMode sync, Gauge gauge) { ab_settings(c).sync = sync, ab_settings(c).gauge = gauge; }

const Variant kVariants[] = {
    {"full", [](auto& c, auto&) { set_sync(c, SyncMode::full, Gauge::orthonormal); }},
    {"with_stale", [](auto& c, auto&) { set_sync(c, SyncMode::with_stale, Gauge::split_sigma); }},
    {"only_learned", [](auto& c, auto&) { set_sync(c, SyncMode::only_learned, Gauge::split_sigma); }},
    {"only_b", [](auto& c, auto&) { set_sync(c, SyncMode::only_b, Gauge::split_sigma); }},
    {"only_b_in_groups",
     [](auto& c, auto& ab) { set_sync(c, SyncMode::only_b, Gauge::orthonormal), ab.group_size = 2; }},
    {"individual", [](auto&, auto& ab) { ab.gradient_scope = GradientScope::individual; }},
    {"individual_in_groups", [](auto&, auto& ab) { ab.gradient_scope = GradientScope::individual, ab.group_size = 2; }},
    {"every_rank_a_group", [](auto&, auto& ab) { ab.group_size = 1; }},
    {"one_group_that_alternates", [](auto&, auto& ab) { ab.group_size = 4; }},
    {"alternating_with_stale",
     [](auto& c, auto& ab) { set_sync(c, SyncMode::with_stale, Gauge::split_sigma), ab.group_size = 4; }},
    {"rest_is_kept", [](auto&, auto& ab) { ab.rest = Rest::keep, ab.final_model = FinalModel::dense; }},
    {"moments_are_truncated", [](auto&, auto& ab) { ab.moments = MomentCarry::truncate; }},
    {"adamw", [](auto& c, auto&) { c.optimizer = "adamw"; }},
    {"adamw_truncated", [](auto& c, auto& ab) { c.optimizer = "adamw", ab.moments = MomentCarry::truncate; }},
    {"sgd_without_momentum", [](auto& c, auto&) { c.momentum = 0; }},
    {"uncut_at_first", [](auto&, auto& ab) { ab.schedule.cut_at_warmup = false; }},
    {"without_warmup", [](auto&, auto& ab) { ab.schedule.first_split = 0; }},
    {"release_order", [](auto&, auto& ab) { ab.schedule.release_order = true, ab.schedule.cut_at_warmup = false; }},
    {"release_order_with_a_restart",
     [](auto&, auto& ab) {
       ab.schedule.release_order = true, ab.schedule.first_split = 5, ab.schedule.full_rank_steps = 1;
     }},
    {"accumulation", [](auto& c, auto&) { c.batch_size = 1, c.accumulate = 3, c.eval_every = 1; }},
    {"sync_bn_in_groups", [](auto& c, auto&) { c.sync_bn = SyncBn::group; }},
    {"sync_bn_over_the_world", [](auto& c, auto&) { c.sync_bn = SyncBn::world; }},
    {"sync_bn_with_accumulation",
     [](auto& c, auto&) { c.sync_bn = SyncBn::group, c.batch_size = 1, c.accumulate = 2; }},
    {"sync_bn_where_every_rank_is_a_group", [](auto& c, auto& ab) { c.sync_bn = SyncBn::group, ab.group_size = 1; }},
    {"averaged_weights", [](auto& c, auto&) { c.ema_decay = 0.9, c.eval_every = 1; }},
    {"rank_multiple", [](auto&, auto& ab) { ab.rank_policy.multiple = 4; }},
    {"rank_too_high_to_pay", [](auto&, auto& ab) { ab.rank_policy.ratio = 0.9; }},
    {"kept_at_full_rank",
     [](auto& c, auto& ab) { ab.always_sync = {c.model == "mlp" ? "fc2.weight" : "layer1.0.conv1.weight"}; }},
};

class Variants : public ::testing::TestWithParam<Variant> {};

TEST_P(Variants, ArePlannedToTheByte) {
  for (const std::int64_t steps : {5, 9, 11, 13}) {
    TrainConfig config = tiny_run("ab", steps);
    config.eval_every = 1;
    GetParam().change(config, ab_settings(config));
    expect_plan_equals_run(config, 5, 3);
    expect_plan_equals_run(config, 4, 2);
  }
  TrainConfig config = convolutions(tiny_run("ab", 13));  // A and B differ in size
  GetParam().change(config, ab_settings(config));
  expect_plan_equals_run(config, 4, 2);
}

INSTANTIATE_TEST_SUITE_P(All, Variants, ::testing::ValuesIn(kVariants),
                         [](const auto& variant) { return std::string(variant.param.name); });

TEST(Plan, WeightsOfBothOrientationsInEveryMode) {
  for (const auto& [sync, gauge] : {std::pair{SyncMode::full, Gauge::split_sigma},
                                    {SyncMode::only_learned, Gauge::split_sigma},
                                    {SyncMode::only_b, Gauge::orthonormal},
                                    {SyncMode::tangent, Gauge::orthonormal}}) {
    TrainConfig config = convolutions(tiny_run("ab", 7));
    set_sync(config, sync, gauge);
    ab_settings(config).schedule.first_split = 1;
    expect_plan_equals_run(config, 3, 2);
  }
}

// --- The timetable, the size of the work, memory, and time.

TEST(Timetable, AgreesWithTheScheduleStepByStep) {
  const PhaseSchedule release{4330, 759, 60, 267, false, true}, ours{10, 9, 4};
  for (const PhaseSchedule& schedule : {release, ours})
    for (const std::int64_t total : {15000, 4331, 11, 6072}) {
      const std::int64_t per_epoch = 390, eval_every = 2;
      const PlannedRun run{.total_steps = total, .steps_per_epoch = per_epoch, .eval_every = eval_every};
      const Timetable table = make_timetable(schedule, run);
      StepCount steps[3];
      std::int64_t evaluations[3] = {}, syncs = 0;
      for (std::int64_t t = 0; t < total; ++t) {
        StepCount& count = steps[static_cast<int>(schedule.phase_at(t))];
        ++count.steps;
        count.last_of_epoch += (t + 1) % per_epoch == 0;
        syncs += schedule.transition_at(t + 1) == Transition::sync;
        if (t > 0 && t % (per_epoch * eval_every) == 0) ++evaluations[static_cast<int>(schedule.phase_at(t))];
      }
      StepCount low_rank;
      std::int64_t low_rank_evaluations = 0, splits = 0, counted_syncs = 0;
      for (const LowRankStage& stage : table.low_rank) {
        low_rank.steps += stage.steps.steps, low_rank.last_of_epoch += stage.steps.last_of_epoch;
        low_rank_evaluations += stage.evaluations;
        splits += stage.splits, counted_syncs += stage.syncs;
      }
      EXPECT_EQ(table.warmup, steps[static_cast<int>(Phase::warmup)]);
      EXPECT_EQ(table.rebound, steps[static_cast<int>(Phase::rebound)]);
      EXPECT_EQ(low_rank, steps[static_cast<int>(Phase::low_rank)]);
      EXPECT_EQ(low_rank_evaluations, evaluations[static_cast<int>(Phase::low_rank)]);
      EXPECT_EQ(run.evaluations(), 1 + evaluations[0] + evaluations[1] + evaluations[2]);
      EXPECT_EQ(splits, schedule.splits_until(total));
      EXPECT_EQ(counted_syncs, syncs);
      EXPECT_EQ(table.last_stage >= 0, schedule.phase_at(total) == Phase::low_rank);
    }
}

PlannedRun large_run(int world, std::int64_t steps) {
  return {.world_size = world, .ranks_per_node = 4, .total_steps = steps, .steps_per_epoch = 300};
}

AbOptions groups_of(int size) {
  AbOptions options;
  options.group_size = size;
  options.schedule = {.first_split = 4330, .cycle_steps = 7, .full_rank_steps = 2, .cut_at_warmup = false};
  return options;
}

/// Half of every rank r.
AbSizes halved(Layer& model) {
  std::vector<std::int64_t> cut_r;
  for (const Weight* w : eligible_weights(model)) cut_r.push_back(w->n() / 2);
  return AbSizes(model, {{cut_r}});
}

TEST(TrafficPlan, DoesNotGrowWithStepsOrRanks) {
  const auto model = make_model({.name = "resnet20"});
  const TrafficPlan small = plan_ab_traffic(halved(*model), groups_of(6), large_run(48, 5000));
  const TrafficPlan large = plan_ab_traffic(halved(*model), groups_of(6), large_run(4096, 45000));
  EXPECT_EQ(large.class_of_rank.size(), 4096u);
  EXPECT_LE(large.classes.size(), 8u);  // A or B, 6 or 7 ranks, one or two nodes crossed in a ring or in both
  EXPECT_LE(large.counted / static_cast<std::int64_t>(large.classes.size()),
            small.counted / static_cast<std::int64_t>(small.classes.size()) + 64);
  EXPECT_LT(large.counted, 2000);
  std::int64_t ranks = 0;
  for (const RankClass& some : large.classes) ranks += some.count;
  EXPECT_EQ(ranks, 4096);
}

TEST(TrafficPlan, CountsExtraCollectivesWithTheirPhase) {
  const auto model = make_model({.name = "mlp", .width = 1.0 / 32});
  PlannedRun run = large_run(12, 5000);
  const TrafficPlan without = plan_ab_traffic(halved(*model), groups_of(6), run);
  run.every_step.push_back({.bytes = 8, .label = "control"});
  run.every_step.push_back({.bytes = 100, .times = 2, .over = ExtraCollective::Over::gradients});
  const TrafficPlan with = plan_ab_traffic(halved(*model), groups_of(6), run);
  for (std::size_t c = 0; c < with.classes.size(); ++c)
    for (const auto& [phase, entry] : with.classes[c].ledger.by_phase()) {
      const auto steps = phase == "warmup" ? 4330 : phase == "low-rank" ? 480 : phase == "rebound" ? 190 : 0;
      EXPECT_EQ(entry.payload_bytes - without.classes[c].ledger.by_phase().at(phase).payload_bytes, 208 * steps)
          << phase;
    }
  const auto entries = with.classes[0].ledger.entries();
  const Route route = route_of(Collective::all_reduce, AllReduce::direct, Layout(consecutive_nodes(12, 4)));
  EXPECT_EQ(entries.at({Collective::all_reduce, "control", "low-rank", route}).calls, 480);
}

TEST(Plan, DenseRunsWithSharedBatchNormStatisticsToTheByte) {
  TrainConfig config = convolutions(tiny_run("dense", 5));  // three batches an epoch: windows of 2 1 2 1 2
  config.accumulate = 2;
  for (const SyncBn scope : {SyncBn::group, SyncBn::world}) {
    config.sync_bn = scope;
    expect_plan_equals_run(config, 4, 2);
  }
  expect_plan_equals_run(config, 1);
}

TEST(Plan, SharedBatchNormStatisticsTravelTwiceAStep) {
  TrainConfig config = convolutions(tiny_run("ab", 9));
  const auto model = make_model(make_model_spec(config, 10, 32));
  std::int64_t sums = 0;  // Σ x, Σ x² and the count of values forward, two sums per channel backward
  for (const BatchNormStats* stats : inventory_of(*model).batch_norms) sums += 4 * stats->running_mean.numel() + 1;
  const RunPlan off = plan_run(config, {.world_size = 4});
  for (const SyncBn scope : {SyncBn::group, SyncBn::world}) {
    config.sync_bn = scope;
    const RunPlan on = plan_run(config, {.world_size = 4});
    for (const auto& [phase, steps] : off.summary.steps_by_phase) {
      const double more = 8.0 * static_cast<double>(sums * steps);  // payload
      const double wire_factor = phase == "low-rank" && config.sync_bn == SyncBn::group ? 2.0 * 1 / 2 : 2.0 * 3 / 4;
      EXPECT_DOUBLE_EQ(on.traffic.at(phase).payload, off.traffic.at(phase).payload + more) << phase;
      EXPECT_DOUBLE_EQ(on.traffic.at(phase).wire(), off.traffic.at(phase).wire() + wire_factor * more) << phase;
    }
  }
}

TEST(TrafficPlan, RefusesWhatDoesNotFit) {
  const auto model = make_model({.name = "mlp", .width = 1.0 / 32});
  const PlannedRun run = large_run(4, 5000);
  EXPECT_THROW(plan_ab_traffic(halved(*model), groups_of(6), run), Error);
  EXPECT_NO_THROW(plan_ab_traffic(halved(*model), groups_of(2), run));
  std::vector<std::int64_t> cut_r = halved(*model).cut.at_the_end;
  cut_r[0] = 17;
  EXPECT_THROW(AbSizes(*model, {{cut_r}}), Error);
  EXPECT_THROW(AbSizes(*model, {{{1}}}), Error);
}

/// Bytes of the model, of the optimizer's state and of the average as they are.
MemoryUse measure(Layer& model, Optimizer& optimizer, const std::vector<const Param*>& ever, Layer& average) {
  MemoryUse use;
  for (const Param* p : inventory_of(average).params) use.average += 4 * p->numel();
  for (const Buffer& buffer : inventory_of(average).buffers)
    use.average += static_cast<std::int64_t>(buffer.value.bytes());
  for (const Param* p : inventory_of(model).params) use.weights += 4 * p->numel();
  for (const Buffer& buffer : inventory_of(model).buffers)
    use.buffers += static_cast<std::int64_t>(buffer.value.bytes());
  for (const Weight* w : inventory_of(model).weights)
    if (w->rest().defined()) use.kept += static_cast<std::int64_t>(w->rest().bytes());
  for (const Param* p : ever)
    for (const Tensor& m : {optimizer.state(*p).first_moment, optimizer.state(*p).second_moment})
      if (m.defined()) use.optimizer += static_cast<std::int64_t>(m.bytes());
  return use;
}

TEST(MemoryPlan, IsWhatTheModelAndTheOptimizerHold) {
  for (const char* optimizer_name : {"sgd", "adamw"})
    for (const MomentCarry moments : {MomentCarry::project, MomentCarry::truncate})
      for (const int group_size : {-1, 2}) {  // halves of one rank, or one group that alternates
        SCOPED_TRACE(fmt::format("{} {} {}", optimizer_name, static_cast<int>(moments), group_size));
        TrainConfig config = convolutions(tiny_run("ab", 20));
        config.optimizer = optimizer_name;
        ab_settings(config).moments = moments;
        ab_settings(config).group_size = group_size;
        ab_settings(config).sync = SyncMode::full;  // keeps no factors of the split, so that `kept` is the rest alone
        ab_settings(config).rest = Rest::keep;
        ab_settings(config).final_model = FinalModel::dense;
        const auto reference = make_model(make_model_spec(config, 10, 32));
        const AbOptions options = ab_options(config);
        PlannedRun run{.world_size = 2, .total_steps = 20, .steps_per_epoch = 6};
        run.moments_per_parameter = make_optimizer(config, {})->moments_per_parameter();
        run.averages_weights = group_size == 2;
        std::vector<std::int64_t> cut_r;
        for (const Weight* w : eligible_weights(*reference))
          cut_r.push_back(options.rank_policy.choose(std::vector<double>(static_cast<std::size_t>(w->n()), 1.0)));
        const AbSizes sizes(*reference, {{cut_r}});
        run_thread_ranks(2, {}, [&](Comm& world) {
          set_compute_threads(1);
          const auto model = make_model(make_model_spec(config, 10, 32));
          const auto optimizer = make_optimizer(config, inventory_of(*model).params);
          WeightAverage average(make_model(make_model_spec(config, 10, 32)), *model, 0.9);
          std::vector<const Param*> ever;
          for (const Param* p : inventory_of(*model).params) ever.push_back(p);
          for (Weight* w : inventory_of(*model).weights) ever.push_back(&w->a()), ever.push_back(&w->b());
          AbStrategy strategy(*model, world, options, {});
          TrainState state{0, *optimizer};
          strategy.start(state);
          const Tensor images = Tensor::zeros({1, 32, 32, 3}), labels = Tensor::zeros({1}, DType::int64);
          for (int step = 0; step < 10; ++step) {  // the third step of the second low-rank phase is the last
            optimizer->clear_grads();
            backward(softmax_cross_entropy(model->forward(Var(images)), labels));
            strategy.finish_grads(state);
            optimizer->step(1e-4);
            const bool alternates = group_size == 2;
            const Factor factor = (alternates ? step == 9 : world.rank() == 1) ? Factor::b : Factor::a;
            if (step == 2 || step == 9) {
              const MemoryUse planned = step == 2 ? memory_at_full_rank(sizes.dense, run)
                                                  : memory_with_factors(sizes, options, run, factor, 0, alternates);
              const MemoryUse held = measure(*model, *optimizer, ever, average.model(*model));
              const bool alone = step == 9 && group_size != 2;  // in its group of the two ranks
              EXPECT_EQ(planned.buckets, alone ? 0 : bucket_memory(planned.gradients, run.gradients.dtype));
              EXPECT_EQ(planned.weights, held.weights);
              EXPECT_EQ(planned.optimizer, held.optimizer);
              EXPECT_EQ(planned.buffers, held.buffers);
              EXPECT_EQ(planned.kept, held.kept);
              EXPECT_EQ(planned.average, run.averages_weights ? held.average : 0);
            }
            ++state.step;
            strategy.after_step(state);
          }
        });
      }
}

// --- The program.

class CliPlanTest : public ab::testing::ProgramTest {};
using ab::testing::contains;

TEST_F(CliPlanTest, PlansTheBytesOfARunOfTheProgram) {
  const std::string flags =
      "--ranks 3 --ranks-per-node 2 --method ab --ab.first-split 1 --ab.cycle-steps 10 --ab.full-rank-steps "
      "1 "
      "--ab.ratio 0.25";
  ASSERT_EQ(run(tiny_train("run", flags)).exit_code, 0);
  const auto plan = run(fmt::format("plan --config {} --train-samples 40 --val-samples 16 --out {}",
                                    path("run/config.toml"), path("plan.json")));
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  for (const char* word : {"mlp on cifar10, ab: 3 ranks on 2 nodes", "warmup", "low-rank", "total",
                           "dense data parallel", "bfloat16", "wire saved", "low-rank, A", "give --step-ms"})
    EXPECT_TRUE(contains(plan.out, word));
  const auto read = [&](const char* file) { return summary_from_json(read_file(path(file), ErrorKind::data), file); };
  const Summary counted = read("run/summary.json"), planned = read("plan.json");
  EXPECT_EQ(planned.wire_bytes_by_rank, counted.wire_bytes_by_rank);
  EXPECT_EQ(planned.wire_bytes_per_rank_by_phase, counted.wire_bytes_per_rank_by_phase);
  EXPECT_EQ(planned.inter_node_bytes_per_rank_total, counted.inter_node_bytes_per_rank_total);
  EXPECT_EQ(planned.per_layer, counted.per_layer);

  // Ranks and the time of a step from the run; its plan is a run's summary too, as far as ranks go.
  for (const char* source : {"run", "run/summary.json", "plan.json"}) {
    const auto again =
        run(fmt::format("plan --config {} --train-samples 40 --val-samples 16 --ab.rank-policy sigma-cutoff "
                        "--factors-from {} --out {}",
                        path("run/config.toml"), path(source), path("again.json")));
    ASSERT_EQ(again.exit_code, 0) << again.err;
    EXPECT_EQ(contains(again.out, "exposed"), std::string(source) != "plan.json") << again.out;
    EXPECT_EQ(read("again.json").wire_bytes_by_rank, counted.wire_bytes_by_rank);
  }
}

TEST_F(CliPlanTest, RanksThatTheLossChoosesAreBoundedBeforeTheRunAndExactAfterIt) {
  for (const char* policy : {"loss-share --late-cut.keep 0.9", "loss-budget --late-cut.keep 0.7"}) {
    SCOPED_TRACE(policy);
    const std::string flags = fmt::format(
        "--overwrite --ranks 3 --method late-cut --late-cut.gather-steps 1 --late-cut.rank-policy {}", policy);
    const auto trained = run(tiny_train("run", flags));
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    const auto planned = [&](const std::string& more) {
      const auto plan = run(fmt::format("plan --config {} --train-samples 40 --val-samples 16 --out {} {}",
                                        path("run/config.toml"), path("plan.json"), more));
      EXPECT_EQ(plan.exit_code, 0) << plan.err;
      return summary_from_json(read_file(path("plan.json"), ErrorKind::data), "plan.json");
    };
    const Summary counted = summary_from_json(read_file(path("run/summary.json"), ErrorKind::data), "run");
    ASSERT_GT(counted.steps_by_phase.count("low-rank"), 0u);
    const Summary most = planned(""), exact = planned("--factors-from " + path("run"));
    EXPECT_GE(most.wire_bytes_per_rank_total, counted.wire_bytes_per_rank_total);
    EXPECT_EQ(exact.wire_bytes_by_rank, counted.wire_bytes_by_rank);
    EXPECT_EQ(exact.per_layer, counted.per_layer);
    EXPECT_EQ(exact.parameters_final, counted.parameters_final);
  }
  expect_failure("plan --model mlp --dataset cifar10 --factors-from " + path("run"), 2,
                 "is a run by late-cut, and this is a plan of dense");
  expect_failure("plan --method late-cut --model resnet20 --dataset cifar10 --factors-from " + path("run"), 2,
                 "is a run of mlp, and this is a plan of resnet20");
}

TEST_F(CliPlanTest, RanksThatChangeFromSplitToSplitAreReplayed) {
  const auto left_dense = [](const LayerRank& layer) { return layer.r == layer.n; };
  for (const auto& [final_model, cutoff] : {std::pair{"factors", 0.6}, {"factors", 0.4}, {"dense", 0.6}}) {
    SCOPED_TRACE(fmt::format("{} {}", final_model, cutoff));
    const std::string out = fmt::format("run_{}_{}", final_model, cutoff);
    const std::string flags = fmt::format(
        "--ranks 3 --method ab --ab.first-split 1 --ab.cycle-steps 3 --ab.full-rank-steps 1 "
        "--ab.rank-policy sigma-cutoff --ab.sigma-cutoff {}",
        cutoff);
    const auto trained = run(fmt::format(
        "train --model mlp --dataset cifar10 --data-dir {} --batch-size 4 --steps 9 --lr 0.2 --out {} {} --ab.final-model {}",
        small_cifar(), path(out), flags, final_model));
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    const auto whole = read_run(path(out));
    ASSERT_GE(whole.splits.size(), 3u);
    EXPECT_NE(whole.splits[0].layers, whole.splits[2].layers) << "of equal ranks nothing is to be seen";
    if (cutoff < 0.5) {
      EXPECT_TRUE(std::ranges::any_of(whole.summary.per_layer, left_dense)) << "all end in factors";
      EXPECT_FALSE(std::ranges::all_of(whole.splits.back().layers, left_dense)) << "nothing was cut";
    }
    const auto plan =
        run(fmt::format("plan --config {0}/config.toml --train-samples 40 --val-samples 16 --out {1} "
                        "--factors-from {0}",
                        path(out), path("plan.json")));
    ASSERT_EQ(plan.exit_code, 0) << plan.err;
    const Summary planned = summary_from_json(read_file(path("plan.json"), ErrorKind::data), "plan.json");
    EXPECT_EQ(planned.wire_bytes_by_rank, whole.summary.wire_bytes_by_rank);
    EXPECT_EQ(planned.wire_bytes_per_rank_by_phase, whole.summary.wire_bytes_per_rank_by_phase);
    EXPECT_EQ(planned.parameters_final, whole.summary.parameters_final);
  }
}

TEST_F(CliPlanTest, NeedsNoDataAndNoLimitOfRanks) {
  const auto plan =
      run("plan --model resnet20 --dataset cifar10 --method ab --world 2048 --ranks-per-node 4 --epochs 3 "
          "--batch-size 4 --ratio 0.25 --classes 100 --step-ms 50 --network bandwidth=12.5GB/s");
  EXPECT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_TRUE(contains(plan.out, "2048 ranks on 512 nodes"));
  EXPECT_TRUE(contains(plan.out, "12.5 GB/s"));
  EXPECT_TRUE(contains(plan.out, "exposed"));
  EXPECT_EQ(plan.out.find('\x1b'), std::string::npos) << "colours without a terminal";
}

TEST_F(CliPlanTest, WrongFlagsAreExitTwo) {
  expect_failure("plan --wrld 3", 2, "did you mean --world?");
  expect_failure("plan --world 0", 2, "--world");
  expect_failure("plan --ratio 1.5 --method ab", 2, "--ratio");
  expect_failure("plan --ratio 0.5", 2, "give --method ab or --method late-cut too");
  expect_failure("plan --method late-cut --late-cut.full-rank-method daso", 2,
                 "can keep ranks together by dense, local, powersgd");
  expect_failure("plan --method late-cut --late-cut.full-rank-method local", 2,
                 "give --late-cut.low-rank-method local too");
  expect_failure("plan --method late-cut --late-cut.low-rank-method daso", 2,
                 "--late-cut.low-rank-method daso: a late cut can");
  expect_failure("plan --method late-cut --late-cut.at 0.5,0.4", 2, "cuts come one after the other");
  expect_failure("plan --method late-cut --late-cut.at 0.4,0.5 --late-cut.keep 0.5,0.6", 2, "cannot keep more");
  expect_failure("plan --method late-cut --late-cut.keep 0.5,0.4", 2, "2 numbers for the 1 cuts");
  expect_failure("plan --method late-cut --steps 1", 2, "there has to be a step before the first cut");
  expect_failure("plan --network bandwidth=0Gbps", 2, "--network: bandwidth must be above 0");
  expect_failure("plan --network latency=4", 2, "--network: latency needs a number and a unit");
  expect_failure("plan --network speed=4ms", 2, "--network: 'speed=4ms' is none of");
  expect_failure("plan --network 'latency=1ms; from 5: latency=2ms'", 2, "a plan takes one network");
  expect_failure("plan --network 'latency=1ms; at 5: latency=2ms'", 2, "begins with 'from STEP:'");
  expect_failure("plan --allreduce star", 2, "--allreduce");
  expect_failure("plan --comm-dtype int8", 2, "--comm-dtype");
  expect_failure("plan --lr nan", 2, "--lr cannot be nan");
  expect_failure("plan --overwrite", 2, "--overwrite");
  expect_failure("plan --method ab --ratio 0.5 --factors-from x", 2, "--factors-from");
  expect_failure("plan --method ab --ab.rank-policy sigma-cutoff", 2, "give --ratio, or --factors-from");
  expect_failure("plan --method ab --ranks 2 --ab.group-size 3", 2, "group");
  expect_failure("plan --world 60000 --batch-size 128", 2, "fewer than one batch");
  expect_failure("plan --steps 1000000000000", 2, "cannot be planned");
  expect_failure("plan --out " + path("none/plan.json"), 2, "there is no folder");
  expect_failure("plan --method ab --factors-from " + path("none"), 3, "none");
}

}  // namespace
}  // namespace ab
