// SPDX-License-Identifier: MIT
//
// A plan of a run against the run: every byte figure of plan_run() equals, as a double, what train() counts.
#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "ablowrank/split.h"
#include "apps/methods/ab.h"
#include "apps/plan/method_choice.h"
#include "apps/train/build_run.h"
#include "apps/train/run_folder.h"
#include "apps/train/stop_request.h"
#include "apps/train/train_loop.h"
#include "engine/core/threads.h"
#include "engine/sync/acpsgd.h"
#include "tests/program_test.h"
#include "tests/striped_images.h"

namespace ab {
namespace {

constexpr std::int64_t kPlanTrainImages = 60, kPlanTestImages = 13;

/// mlp with 16 hidden units: no buffers, square weights. Three warm-up steps, cycles of five with two at full
/// rank.
TrainConfig tiny_run(const std::string& method, std::int64_t steps) {
  TrainConfig config;
  config.model = "mlp";
  config.width = 1.0 / 32;
  config.dataset = "synthetic";
  config.train_samples = kPlanTrainImages;
  config.val_samples = kPlanTestImages;
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
  const TrainAndTest images{first(test::striped_sets(kPlanTrainImages, kPlanTestImages).train, config.train_samples),
                            first(test::striped_sets(kPlanTrainImages, kPlanTestImages).test, config.val_samples)};
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

class RanksAndNodes : public testing::TestWithParam<std::pair<int, int>> {};

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

// The run ends in the warm-up (2), where the first split would be (3), amid factors (5), at a synchronisation (6), in the
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

TEST_P(RanksAndNodes, FrozenFiltersAndViewsArePlannedToTheByte) {
  const auto [ranks, per_node] = GetParam();
  for (const char* method : {"dense", "ab"}) {
    TrainConfig config = convolutions(tiny_run(method, 7));
    config.model = "conv6_cifar", config.width = 0.125;
    config.val_views = true;
    expect_plan_equals_run(config, ranks, per_node);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RanksAndNodes,
                         testing::Values(std::pair{1, 0}, std::pair{2, 0}, std::pair{2, 2}, std::pair{4, 0},
                                         std::pair{4, 2}, std::pair{4, 3}, std::pair{5, 0}, std::pair{5, 2},
                                         std::pair{5, 3}));

struct PlannedVariant {
  const char* name;
  std::function<void(TrainConfig& config, AbOptions& ab)> change;
};

void set_sync(TrainConfig& c, SyncMode sync, Gauge gauge) { ab_settings(c).sync = sync, ab_settings(c).gauge = gauge; }

const PlannedVariant kVariants[] = {
    {"full", [](auto& c, auto&) { set_sync(c, SyncMode::full, Gauge::orthonormal); }},
    {"with_stale", [](auto& c, auto&) { set_sync(c, SyncMode::with_stale, Gauge::split_sigma); }},
    {"only_learned", [](auto& c, auto&) { set_sync(c, SyncMode::only_learned, Gauge::split_sigma); }},
    {"only_b", [](auto& c, auto&) { set_sync(c, SyncMode::only_b, Gauge::split_sigma); }},
    {"only_b_in_groups",
     [](auto& c, auto& ab) { set_sync(c, SyncMode::only_b, Gauge::orthonormal), ab.group_size = 2; }},
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
    {"rank_multiple", [](auto& c, auto&) { c.rank_multiple = 4; }},
    {"rank_too_high_to_pay", [](auto&, auto& ab) { ab.rank_policy.ratio = 0.9; }},
    {"kept_at_full_rank",
     [](auto& c, auto& ab) { ab.always_sync = {c.model == "mlp" ? "fc2.weight" : "layer1.0.conv1.weight"}; }},
};

class Variants : public testing::TestWithParam<PlannedVariant> {};

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

INSTANTIATE_TEST_SUITE_P(All, Variants, testing::ValuesIn(kVariants),
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

TEST(Plan, DenseRunsWithSharedBatchNormStatisticsToTheByte) {
  TrainConfig config = convolutions(tiny_run("dense", 5));  // three batches an epoch: windows of 2 1 2 1 2
  config.accumulate = 2;
  EXPECT_EQ(plan_run(config, {.world_size = 4, .step_milliseconds = 500}).whole_updates, 4);
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

// --- The program.

class CliPlanTest : public ab::test::ProgramTest {};
using ab::test::contains;

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
                           "dense data parallel", "\nbf16 ", "wire saved", "low-rank, A", "give --step-ms"})
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
        run(fmt::format("plan --config {} --train-samples 40 --val-samples 16 --ab.ratio 0 "
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
        "--ab.ratio 0 --ab.sigma-cutoff {}",
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
      run("plan --model resnet20 --dataset cifar10 --method ab --ranks 2048 --ranks-per-node 4 --epochs 3 "
          "--batch-size 4 --ratio 0.25 --classes 100 --step-ms 50 --network bandwidth=12.5GB/s");
  EXPECT_EQ(plan.exit_code, 0) << plan.err;
  EXPECT_TRUE(contains(plan.out, "2048 ranks on 512 nodes"));
  EXPECT_TRUE(contains(plan.out, "12.5 GB/s"));
  EXPECT_TRUE(contains(plan.out, "exposed"));
  EXPECT_EQ(plan.out.find('\x1b'), std::string::npos) << "colours without a terminal";
}

TEST_F(CliPlanTest, WrongFlagsAreExitTwo) {
  expect_failure("plan --rnks 3", 2, "did you mean --ranks?");
  expect_failure("plan --ranks 0", 2, "--ranks");
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
  expect_failure("plan --step-ms nan", 2, "--step-ms: 'nan' is no number from 0 to 1000000000");
  expect_failure("plan --step-ms inf", 2, "--step-ms: 'inf' is no number from 0");
  expect_failure("plan --method ab --ratio nan", 2, "--ratio: 'nan' is no number from 1e-06 to 1");
  expect_failure("plan --method int8 --comm-dtype bf16", 2, "--comm-dtype would change nothing: method int8 ");
  expect_failure("plan --method sparseloco --comm-dtype bf16", 2, "--comm-dtype would change nothing: ");
  expect_failure("plan --overwrite", 2, "--overwrite");
  expect_failure("plan --method ab --ratio 0.5 --factors-from x", 2, "--factors-from");
  expect_failure("plan --method ab --ab.ratio 0", 2, "give --ratio, or --factors-from");
  expect_failure("plan --method ab --ranks 2 --ab.group-size 3", 2, "group");
  expect_failure("plan --ranks 60000 --batch-size 128", 2, "fewer than one batch");
  expect_failure("plan --steps 1000000000000", 2, "cannot be planned");
  expect_failure("plan --out " + path("none/plan.json"), 2, "there is no folder");
  expect_failure("plan --method ab --factors-from " + path("none"), 3, "none");
}

/// Cells of the lines of a file in bench/.
std::vector<std::vector<std::string>> cells_of(const std::string& file, char between) {
  std::ifstream in(std::string(AB_SOURCE_DIR) + "/bench/" + file);
  std::vector<std::vector<std::string>> lines;
  for (std::string line; std::getline(in, line);) {
    std::istringstream text(line);
    lines.emplace_back();
    for (std::string cell; std::getline(text, cell, between);) lines.back().push_back(cell);
  }
  return lines;
}

/// "--local.node-size 0" as a setting; less how gradients travel, and the rate, which is of a net.
std::set<FlagValue> settings_of(const std::string& flags) {
  std::istringstream words(flags);
  std::set<FlagValue> settings;
  for (std::string word, value; words >> word;) {
    std::string key = word.substr(word.starts_with("--no-") ? 5 : 2);
    std::replace(key.begin(), key.end(), '-', '_');
    if (word.starts_with("--no-")) value = "false";
    else words >> value;
    if (key != "comm_dtype" && key != "lr") settings.emplace(key, value);
  }
  return settings;
}

TEST(MethodChoice, AccuracyIsThatOfTheComparison) {
  std::map<std::string, std::map<std::string, double>> top1;  // by row and seed
  for (const auto& line : cells_of("convergence.tsv", '\t'))
    if (line.size() > 3 && line[1] == "conv6_cifar") top1[line[0]][line[2]] = std::stod(line[3]);
  std::map<std::string, std::string> flags;
  for (const auto& line : cells_of("convergence.list", '|'))
    if (line.size() == 4 && line[1] == " conv6_cifar ") flags[line[0].substr(0, line[0].find(' '))] = line[3];
  for (const MeasuredMethod& method : measured_methods()) {
    SCOPED_TRACE(method.row);
    ASSERT_EQ(top1[method.row].size(), 3u);
    double below = 0;
    for (const auto& [seed, accuracy] : top1[method.row]) below += (top1["dense"].at(seed) - accuracy) / 3;
    EXPECT_NEAR(method.points_below, below, 0.0051);
    std::set<FlagValue> own(method.flags.begin(), method.flags.end());
    std::erase_if(own, [](const FlagValue& flag) { return flag.first == "comm_dtype" || flag.second == "dense"; });
    EXPECT_EQ(own, settings_of(flags.at(method.row)));
  }
}

TEST(MethodChoice, EveryMethodIsPlannedInItsBestBucket) {
  const std::vector<FlagValue> flags{{"model", "resnet20"},   {"dataset", "cifar10"},
                                     {"steps", "400"},        {"ranks", "4"},
                                     {"ranks_per_node", "1"}, {"network", "latency=1ms,bandwidth=1Gbps"}};
  const std::vector<MethodPlan> plans = plan_all_methods(flags, "", {.step_milliseconds = 20});
  double before = 0;
  for (const MethodPlan& plan : plans) {
    SCOPED_TRACE(plan.method->row);
    EXPECT_TRUE(plan.can_train && plan.as_measured);
    std::vector<FlagValue> own = flags;
    own.insert(own.end(), plan.flags.begin(), plan.flags.end());
    const RunPlan again = plan_run(resolve_train_config(own, "", ConfigUse::plan), {.step_milliseconds = 20});
    EXPECT_EQ(again.exposed_seconds(), plan.best.plan.exposed_seconds());
    EXPECT_GT(again.summary.inter_node_bytes_per_rank_total, 0);
    own.erase(
        std::remove_if(own.begin(), own.end(), [](const auto& flag) { return flag.first.ends_with("bucket_mb"); }),
        own.end());
    const RunPlan by_default = plan_run(resolve_train_config(own, "", ConfigUse::plan), {.step_milliseconds = 20});
    EXPECT_LE(plan.best.plan.exposed_seconds(), by_default.exposed_seconds());
    if (plan.best.plan.summary.method == "dense") continue;  // comes first
    EXPECT_GE(plan.best.plan.run_seconds(), before);
    before = plan.best.plan.run_seconds();
  }
  EXPECT_EQ(plans.size(), measured_methods().size());
}

/// Four ranks on nodes of their own.
TrainConfig in_auto_buckets(const std::string& method, const std::string& ranks = "4") {
  return resolve_train_config({{"model", "resnet20"},
                               {"dataset", "cifar10"},
                               {"steps", "100"},
                               {"ranks", ranks},
                               {"ranks_per_node", "1"},
                               {"network", "latency=1ms,bandwidth=1Gbps"},
                               {"method", method},
                               {"bucket_mb", "auto"}},
                              "", ConfigUse::plan);
}

TEST(BucketChoice, AutoIsTheSizeThatDelaysTheRunLeast) {
  for (const char* method : {"dense", "acpsgd"})
    for (const double step_milliseconds : {4.0, 200.0, 0.0}) {
      SCOPED_TRACE(fmt::format("{}, {} ms a step", method, step_milliseconds));
      PlanOptions options{.step_milliseconds = step_milliseconds};
      TrainConfig config = in_auto_buckets(method);
      const TrainConfig settled = settle_bucket(config, options);
      const auto exposed = [&](double bucket, double own) {
        config.bucket_mb = bucket, config.of<AcpSgdOptions>().bucket_mb = own;
        return plan_run(config, options).exposed_seconds();
      };
      // Of a step of unknown length all communication is exposed, and it computes as long.
      if (step_milliseconds == 0) options.step_milliseconds = 1000 * exposed(0, 25) / 100;
      double best = 0, least = exposed(0, 25);
      for (const double size : {1.0 / 16, 1.0 / 8, 1.0 / 4, 1.0 / 2, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0})
        if (exposed(size, size) < least) best = size, least = exposed(size, size);
      EXPECT_GT(best, 0) << "the default is no best size";
      EXPECT_EQ(settled.bucket_mb, best);
      EXPECT_EQ(settled.of<AcpSgdOptions>().bucket_mb, settled.method == "acpsgd" ? best : 25);
    }
}

TEST(BucketChoice, WhatIsGivenStays) {
  TrainConfig config = in_auto_buckets("acpsgd");
  config.of<AcpSgdOptions>().bucket_mb = 3;
  EXPECT_EQ(settle_bucket(config, {}).of<AcpSgdOptions>().bucket_mb, 3);
  config.bucket_mb = 7;
  EXPECT_EQ(to_toml(settle_bucket(config, {})), to_toml(config));
  for (const auto& [device, by_default] : {std::pair{"cpu", 4.0}, {"cuda", 25.0}}) {
    TrainConfig alone = in_auto_buckets("dense", "1");
    alone.device = device;
    EXPECT_EQ(settle_bucket(alone, {}).bucket_mb, by_default) << "nothing is sent";
  }
}

TEST_F(CliPlanTest, SaysWhatBucketsAutoTakes) {
  const std::string plan =
      "plan --dataset cifar10 --ranks 4 --ranks-per-node 1 --network latency=1ms,bandwidth=1Gbps --steps 100 ";
  const auto number = [&](const TrainConfig& config, double step_milliseconds) {
    return settle_bucket(config, {.step_milliseconds = step_milliseconds}).bucket_mb;
  };
  const double blind = number(in_auto_buckets("dense"), 0), known = number(in_auto_buckets("acpsgd"), 4);
  const auto unknown = run(plan + "--bucket-mb auto");
  EXPECT_TRUE(
      contains(unknown.out, fmt::format("\n--bucket-mb auto takes --bucket-mb {}, for steps that compute as long "
                                        "as they communicate.\n",
                                        blind)))
      << unknown.out;
  const std::string acpsgd = plan + "--method acpsgd --step-ms 4 ";
  const auto chosen = run(acpsgd + "--bucket-mb auto"), by_default = run(acpsgd);
  const std::string flags = fmt::format("--bucket-mb {0} --acpsgd.bucket-mb {0}", known);
  EXPECT_TRUE(contains(chosen.out, "\n--bucket-mb auto takes " + flags + ".\n")) << chosen.out;
  EXPECT_TRUE(contains(by_default.out, "\n" + flags + " would expose ")) << by_default.out;
  const auto given = run(acpsgd + flags);
  EXPECT_EQ(given.out, chosen.out.substr(0, given.out.size())) << "planned in those buckets";
  expect_failure("plan --bucket-mb automatic", 2,
                 "--bucket-mb cannot be 'automatic'; allowed is a number, 0 to 1024 or auto");
  expect_failure("plan --bucket-mb -1", 2, "--bucket-mb cannot be -1; allowed is a number");
  expect_failure("plan --acpsgd.bucket-mb auto --method acpsgd", 2, "--acpsgd.bucket-mb cannot be 'auto'");
}

// Milliseconds of bench/RESULTS.md, "On an H200".
TEST(StepTime, AutoIsThatOfAnH200WithinAFactorOfTwo) {
  for (const auto& [model, measured] : {std::pair{"resnet50", 17.51}, {"vgg16_bn", 29.64}, {"vit_b_16", 34.84}})
    for (const int accumulate : {1, 3}) {
      TrainConfig config;
      config.model = model, config.dataset = "imagenet", config.epochs = 90, config.warmup_epochs = 5;
      config.device = "cuda", config.precision = "bf16", config.accumulate = accumulate;
      PlanOptions options{.step_milliseconds = kAutoStep};
      EXPECT_TRUE(contains(settle_step(config, options), "18 % (ResNet-50)"));
      EXPECT_GT(options.step_milliseconds, accumulate * measured / 2) << model;
      EXPECT_LT(options.step_milliseconds, accumulate * measured * 2) << model;
    }
}

TEST_F(CliPlanTest, StepMsAutoIsOfARunOrOfAnH200) {
  ASSERT_EQ(run(tiny_train("run", "--ranks 2 --method ab --ab.first-split 1 --ab.ratio 0.25")).exit_code, 0);
  const double milliseconds = 1000 * 4 * 2 / read_run(path("run")).summary.images_per_second;
  const auto of_run = run(fmt::format("plan --config {0}/config.toml --factors-from {0} --step-ms auto", path("run")));
  EXPECT_TRUE(contains(of_run.out,
                       fmt::format("\n--step-ms auto takes {:.3g} ms, as steps of {} took", milliseconds, path("run"))))
      << of_run.out << of_run.err;
  ASSERT_EQ(run(tiny_train("dense", "--ranks 2")).exit_code, 0);
  expect_failure("plan --method late-cut --model mlp --factors-from " + path("dense"), 2,
                 "is a run by dense, and this is a plan of late-cut");
  PlanOptions decided{.decisions_from = path("run"), .step_milliseconds = kAutoStep};
  TrainConfig config = tiny_run("dense", 4);
  config.batch_size = 4;
  settle_step(config, decided);
  EXPECT_DOUBLE_EQ(decided.step_milliseconds, milliseconds);

  const std::string h200 =
      "plan --model resnet18 --dataset imagenet --device cuda --precision bf16 --ranks 4 --steps 9 ";
  PlanOptions options{.step_milliseconds = kAutoStep};
  config = {};
  config.model = "resnet18", config.dataset = "imagenet", config.device = "cuda", config.precision = "bf16";
  const std::string sentence = settle_step(config, options);
  const auto planned = run(h200 + "--step-ms auto"),
             compared = run(h200 + "--ranks-per-node 1 --compare --step-ms auto");
  EXPECT_TRUE(contains(planned.out, "\n" + sentence) && contains(planned.out, "exposed: ")) << planned.out;
  EXPECT_TRUE(contains(compared.out, "\n" + sentence)) << compared.out;
  EXPECT_TRUE(contains(compared.out, fmt::format("9 steps of {:.1f} ms", options.step_milliseconds))) << compared.out;
  expect_failure("plan --step-ms auto", 2, "--step-ms auto knows an H200 in 16 bits alone");
  expect_failure("plan --step-ms auto --device cuda", 2, "give the milliseconds, which train");
  for (const char* wrong : {"-1", "soon"}) expect_failure(fmt::format("plan --step-ms {}", wrong), 2, "--step-ms");
}

TEST_F(CliPlanTest, AllMethodsAreComparedAndOneIsNamed) {
  const std::string shape = "plan --compare --dataset cifar10 --steps 400 --ranks 4 --step-ms 20 ";
  const std::string command = shape + "--ranks-per-node 1 ";
  const auto fast = run(command + "--network bandwidth=100Gbps");
  const auto slow = run(command + "--network latency=5ms,bandwidth=0.01Gbps");
  EXPECT_TRUE(contains(fast.out, "saves 3 % of its time:\n  --method dense --comm-dtype bf16")) << fast.out;
  EXPECT_TRUE(contains(slow.out, "takes the least time, ")) << slow.out;
  const auto one_node = run(shape + "--network bandwidth=1Gbps");
  EXPECT_TRUE(contains(one_node.err, "this plan has one; say how many ranks a node has")) << one_node.err;
  const auto adamw = run(command + "--optimizer adamw");
  EXPECT_TRUE(contains(adamw.out, "dion cannot train so; abtrain plan --method dion says why")) << adamw.out;
  write_file_atomically(path("own.toml"), "[powersgd]\nmin_rate = 3.0\n");
  EXPECT_TRUE(contains(run(command + "--config " + path("own.toml")).out, " –\n")) << "accuracy of other settings";
  expect_failure("plan --compare --dataset cifar10", 2, "give --step-ms");
  expect_failure("plan --compare --dataset cifar10 --step-ms 1", 2, "give --ranks");
  expect_failure("plan --compare --step-ms 1 --ranks 2 --method ab", 2, "leave --method away");
  expect_failure("plan --compare --step-ms 1 --ranks 2 --ab.ratio 0.5", 2, "leave --ab.ratio away");
  expect_failure("plan --compare --step-ms 1 --dataset cifar10 --ranks 60000 --batch-size 128", 2,
                 "fewer than one batch of 128 on each of 60000 ranks");
  expect_failure("plan --compare --step-ms 3 --out x.json", 2, "--out");
  const auto dense =
      run("plan --dataset cifar10 --ranks 4 --ranks-per-node 1 --step-ms 20 --steps 400 "
          "--network bandwidth=1Gbps");
  EXPECT_TRUE(contains(dense.out, " would expose ")) << dense.out;
  EXPECT_FALSE(contains(dense.out, "loading: ")) << "nothing is decoded";
}

TEST_F(CliPlanTest, TellsTheCoresThatDecodingTakes) {
  const std::string plan =
      "plan --dataset imagenet --model resnet18 --batch-size 50 --accumulate 2 --steps 20 --ranks 8 --ranks-per-node 4 "
      "--step-ms 80";
  const std::string line = "\nloading: 1250 images/s take 2 cores a rank and 7 a node, at 800 images/s a core\n";
  EXPECT_TRUE(contains(run(plan).out, line)) << run(plan).out;
  EXPECT_TRUE(contains(run(plan + " --compare").out, line)) << run(plan + " --compare").out;
  EXPECT_FALSE(contains(run(plan).out, "images of an epoch"));
  const std::string cached = run(plan + " --cache-gb 1000").out;
  EXPECT_TRUE(contains(run(plan + " --compare --cache-gb 1000").out, "157 GB of their pixels cross nodes in an epoch"));
  EXPECT_TRUE(contains(cached, ": 641 k from memory, 641 k from the memory of other nodes\n")) << cached;
  EXPECT_TRUE(
      contains(cached, "A node could keep 360 GB of them.\n157 GB of their pixels cross nodes in an epoch: 3.1 s on"))
      << cached;
  EXPECT_TRUE(contains(cached, "computing.\nGradients of all ranks are 269 GB.\n--cache-share off takes 0 images"))
      << cached;
}

TEST(Plan, HeedsNoRequestToStop) {
  const TrainConfig config = tiny_run("dense", 9);
  const double bytes = plan_run(config, {.world_size = 2}).summary.wire_bytes_per_rank_total;
  request_stop();
  const Summary planned = plan_run(config, {.world_size = 2}).summary;
  clear_stop_request();
  EXPECT_EQ(planned.steps, 9);
  EXPECT_EQ(planned.wire_bytes_per_rank_total, bytes);
}

TEST(Plan, CountsTheMemoryOfTheThreadsThatTheRunHas) {
  TrainConfig config = resolve_config_text({{"dataset", "cifar10"}, {"model", "resnet20"}}, "", "", ConfigUse::plan);
  config.batch_size = 64, config.steps = 2, config.ranks = 2;
  const auto total = [&](int threads) {
    config.threads = threads;
    return plan_run(config, {}).memory.front().use.total();
  };
  const int before = compute_threads();
  EXPECT_LT(total(1), total(64));
  EXPECT_EQ(compute_threads(), before);
}

TEST(Plan, SaysWhereImagesComeFromWithACache) {
  TrainConfig config = resolve_config_text({{"dataset", "imagenet"}}, "", "", ConfigUse::plan);
  constexpr std::int64_t kAll = 1'000'000;
  constexpr double kSeen = 0.437;  // of a photograph, by the crops of training
  const auto images = [&](CacheShare share, double gb, int nodes, const char* disk = "") {
    config.cache_share = share, config.cache_gb = gb, config.cache_disk = disk;
    const ImagePlan plan = plan_images(config, kAll, nodes);
    EXPECT_NEAR(plan.from_memory + plan.from_nodes + plan.from_disk + plan.from_files, kAll, 1e-3);
    EXPECT_NEAR(plan.bytes_from_nodes, plan.from_nodes * 500 * 375 * 3 * kSeen, 0.01 * plan.bytes_from_nodes);
    return plan;
  };
  constexpr double kQuarter = 0.25 * kAll * 500 * 375 * 3 / 1e9;
  EXPECT_EQ(images(CacheShare::world, kQuarter, 1).from_memory, kAll / 4);
  EXPECT_EQ(images(CacheShare::world, kQuarter, 2).from_memory, kAll / 4) << "half is kept, and half of that is near";
  EXPECT_EQ(images(CacheShare::world, kQuarter, 2).from_nodes, kAll / 4);
  EXPECT_EQ(images(CacheShare::world, kQuarter, 8).from_files, 0);
  EXPECT_EQ(images(CacheShare::world, kQuarter, 8).from_nodes, kAll / 8 * 7);
  EXPECT_EQ(images(CacheShare::node, kQuarter, 2).from_memory, kAll / 2);
  EXPECT_EQ(images(CacheShare::node, kQuarter, 2).from_nodes, 0);
  EXPECT_EQ(images(CacheShare::off, kQuarter, 2).from_memory, kAll / 4);
  EXPECT_EQ(images(CacheShare::off, 0, 2, "/disk").from_disk, kAll);
  config.augment = false;
  EXPECT_EQ(plan_images(config, kAll, 2).bytes_from_nodes, 0);
  config.cache_share = CacheShare::world, config.cache_gb = kQuarter;
  EXPECT_EQ(plan_images(config, kAll, 2).bytes_from_nodes, kAll / 4 * 500 * 375 * 3) << "whole images";
  config.cache_gb = 0;
  config.cache_disk_gb = kAll / 4 * 110e3 / 1e9;
  EXPECT_EQ(images(CacheShare::node, 0, 2, "/disk").from_disk, kAll / 2);
  EXPECT_EQ(images(CacheShare::off, kQuarter / 2, 1, "/disk").from_disk, kAll / 8);
}

}  // namespace
}  // namespace ab
