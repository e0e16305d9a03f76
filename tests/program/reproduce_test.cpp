// SPDX-License-Identifier: MIT
//
// The paper's experiments: shipped configurations against the settings of the authors' release, plans and
// figures beside the published ones, and abtrain reproduce.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "apps/methods/ab.h"
#include "apps/paper/experiments.h"
#include "apps/paper/paper_traffic.h"
#include "apps/train/run_folder.h"
#include "tests/program_test.h"

namespace ab {
namespace {

using ab::test::contains;

struct Released {
  const char* name;
  const char* model;
  int ranks;
  std::int64_t batch, steps, lr_warmup, parameters;
  std::int64_t warmup, cycle, full_rank, rebound;  // W, S, D, R
  SyncMode sync;
};
constexpr std::int64_t kVgg16 = 134301514, kResNet50 = 25557032,
                       kVit = 86567656 - 12 * 3 * 768;  // no bias of q, k, v
constexpr Released kReleased[] = {
    {"vgg16_cifar10", "vgg16", 8, 128, 15000, 1000, kVgg16, 4330, 759, 60, 267, SyncMode::only_b},
    {"resnet50_2k", "resnet50", 8, 256, 90000, 6000, kResNet50, 24000, 6000, 300, 600, SyncMode::with_stale},
    {"resnet50_4k", "resnet50", 16, 256, 45000, 3000, kResNet50, 9300, 3000, 300, 750, SyncMode::with_stale},
    {"resnet50_8k", "resnet50", 32, 256, 22500, 1500, kResNet50, 6150, 1500, 150, 325, SyncMode::with_stale},
    {"resnet50_16k", "resnet50", 64, 256, 11250, 750, kResNet50, 3750, 600, 75, 188, SyncMode::with_stale},
    {"resnet50_32k", "resnet50", 128, 256, 5700, 380, kResNet50, 1900, 400, 38, 94, SyncMode::with_stale},
    {"resnet50_64k", "resnet50", 256, 256, 2850, 190, kResNet50, 581, 94, 19, 47, SyncMode::with_stale},
    {"resnet50_nogroups_2k", "resnet50", 8, 256, 90000, 6000, kResNet50, 24000, 6000, 300, 600, SyncMode::only_b},
    {"resnet50_nogroups", "resnet50", 16, 256, 45000, 3000, kResNet50, 9300, 3000, 300, 750, SyncMode::only_b},
    {"vit_b16_2k", "vit_b_16", 8, 256, 90000, 6000, kVit, 24600, 4360, 600, 1500, SyncMode::only_b},
    {"vit_b16_4096", "vit_b_16", 16, 256, 45000, 3000, kVit, 12300, 2180, 300, 750, SyncMode::only_b},
};

TEST(PaperConfigurations, EveryExperimentHasOneAndNoneIsLeftOver) {
  EXPECT_EQ(std::ranges::count(experiments(), true, &Experiment::is_of_paper), std::size(kReleased));
  EXPECT_EQ(experiment_configs().size(), experiments().size());
  for (const Experiment& experiment : experiments()) EXPECT_NO_THROW(experiment_config(experiment)) << experiment.name;
}

TEST(PaperConfigurations, AreThoseOfTheRelease) {
  for (const Released& released : kReleased) {
    SCOPED_TRACE(released.name);
    const TrainConfig config = experiment_config(find_experiment(released.name));
    EXPECT_EQ(config.model, released.model);
    EXPECT_EQ(config.ranks, released.ranks);
    EXPECT_EQ(config.ranks_per_node, 4);
    EXPECT_EQ(config.batch_size, released.batch);
    EXPECT_EQ(config.steps, released.steps);
    EXPECT_EQ(config.warmup_steps, released.lr_warmup);
    EXPECT_EQ(config.optimizer, "adamw");
    EXPECT_EQ(config.init, Init::ortho);
    EXPECT_EQ(ab_settings(config).schedule.first_split, released.warmup);
    EXPECT_EQ(ab_settings(config).schedule.cycle_steps, released.cycle);
    EXPECT_EQ(ab_settings(config).schedule.full_rank_steps, released.full_rank);
    EXPECT_EQ(ab_settings(config).schedule.rebound_steps, released.rebound);
    EXPECT_EQ(ab_settings(config).sync, released.sync);
    EXPECT_EQ(ab_settings(config).rank_policy.cutoff, 0.15);
    EXPECT_TRUE(ab_settings(config).schedule.release_order);
    const RunPlan plan = plan_run(config, {.ratio = 0.25});
    EXPECT_EQ(plan.summary.parameters_full, released.parameters);
    EXPECT_EQ(plan.summary.world_size, released.ranks);
  }
}

TEST(PaperTraffic, GroupsInsideNodesSendNothingBetweenThemInLowRankStepsAtAnyRank) {
  for (const char* name : {"resnet50_2k", "resnet50_32k"}) {
    SCOPED_TRACE(name);
    const TrainConfig config = experiment_config(find_experiment(name));
    for (const double ratio : {1.0 / 16, 1.0}) {
      const TrafficFigures figures = plan_experiment(config, {.ratio = ratio}).at(0).figures;
      EXPECT_LE(figures.run_inter_node, figures.low_rank_steps) << "full-rank steps bound what a run saves";
      EXPECT_GT(figures.low_rank_inter_node, 0.99) << "statistics of batch norm are of the world";
    }
  }
}

TEST(PaperTraffic, LowRankStepsWithoutBatchNormSendNothingBetweenNodes) {
  const TrainConfig config = experiment_config(find_experiment("vgg16_cifar10"));
  EXPECT_EQ(plan_experiment(config, {.ratio = 0.25}).at(0).figures.low_rank_inter_node, 1);
}

TEST(PaperTraffic, FindsTheRankFractionOfATarget) {
  const std::vector<TrainConfig> configs{experiment_config(find_experiment("vit_b16_2k"))};
  const TrafficDefinition whole_run = kTrafficDefinitions[0];
  const RankFractionSearch found = find_rank_fraction(configs, whole_run, 0.55);
  ASSERT_TRUE(found.fraction);
  EXPECT_NEAR(plan_experiment(configs[0], {.ratio = *found.fraction})[0].figures.run, 0.55, 1e-3);
  const RankFractionSearch none = find_rank_fraction(configs, whole_run, 0.9);
  EXPECT_FALSE(none.fraction);
  EXPECT_LT(none.at_lowest_rank, 0.9);
  EXPECT_LT(none.at_full_rank, none.at_lowest_rank);
}

TEST(PaperTraffic, ComparesWithTheDenseTwin) {
  const TrainConfig config = experiment_config(find_experiment("resnet50_4k"));
  TrainConfig dense = config;
  dense.method = "dense";
  const RunPlan plan = plan_run(config, {.ratio = 0.25}), twin = plan_run(dense, {});
  const TrafficFigures figures = traffic_figures(plan, twin);
  EXPECT_DOUBLE_EQ(figures.run, 1 - plan.summary.wire_bytes_per_rank_total / plan.dense_float32.wire_bytes);
  EXPECT_DOUBLE_EQ(figures.run_inter_node,
                   1 - plan.summary.inter_node_bytes_per_rank_total / plan.dense_float32.inter_node_bytes);
  EXPECT_DOUBLE_EQ(figures.low_rank_steps, 0.72);
  EXPECT_GT(figures.training, figures.run);
  EXPECT_LT(figures.low_rank, figures.low_rank_inter_node) << "groups send inside their nodes";
  const TrafficFigures of_summaries = traffic_figures(plan.summary, twin.summary);
  EXPECT_EQ(of_summaries.low_rank, figures.low_rank);
  EXPECT_TRUE(std::isnan(of_summaries.low_rank_inter_node)) << "a summary does not tell that";
}

TEST(Settings, ThatDoNotCountForAMethodDoNotDiffer) {
  TrainConfig saved, now;
  saved.method = now.method = "dense";
  now.execution = Execution::form_w, now.rank_multiple = 3;
  EXPECT_TRUE(differing_settings(saved, now).empty());
  saved.method = now.method = "ab";
  EXPECT_EQ(differing_settings(saved, now).size(), 2u);
}

int group_size(const TrainConfig& config) { return ab_settings(config).group_size; }

TEST(ScaleConfig, KeepsProportionsNodesAndGroups) {
  const TrainConfig full = experiment_config(find_experiment("resnet50_4k"));
  EXPECT_TRUE(differing_settings(full, scale_config(full, 1)).empty());
  const TrainConfig half = scale_config(full, 0.5);
  EXPECT_EQ(half.ranks, 8);
  EXPECT_EQ(half.ranks_per_node, 4);
  EXPECT_EQ(ab_settings(half).group_size, 4);
  EXPECT_EQ(half.steps, full.steps / 2);
  EXPECT_EQ(half.warmup_steps, full.warmup_steps / 2);
  EXPECT_EQ(ab_settings(half).schedule.cycle_steps, ab_settings(full).schedule.cycle_steps / 2);
  EXPECT_EQ(half.train_samples, 640584);
  EXPECT_EQ(half.lr, full.lr);
  EXPECT_EQ(half.batch_size, full.batch_size);
  EXPECT_EQ(group_size(scale_config(full, 0.25)), 2) << "two nodes of two";
  EXPECT_EQ(group_size(scale_config(full, 0.25, 2)), 1) << "two nodes of one, if told so";
  const TrainConfig tiny = scale_config(full, 1e-6);
  EXPECT_EQ(tiny.ranks, 4);
  EXPECT_EQ(tiny.ranks_per_node, 2);
  EXPECT_EQ(ab_settings(tiny).group_size, 2);
  EXPECT_GE(tiny.steps, ab_settings(tiny).schedule.first_split + ab_settings(tiny).schedule.cycle_steps);
  EXPECT_LT(ab_settings(tiny).schedule.full_rank_steps, ab_settings(tiny).schedule.cycle_steps);
  EXPECT_EQ(tiny.train_samples, 4 * tiny.batch_size);
  EXPECT_LT(tiny.warmup_steps, tiny.steps) << "a warm-up that does not end is refused";
  for (const double scale : {0.0, -1.0, 1.5, std::nan("")}) EXPECT_THROW(scale_config(full, scale), Error);

  EXPECT_TRUE(differing_settings(full, full).empty());
  EXPECT_TRUE(contains(fmt::format("{}", fmt::join(differing_settings(full, half), ", ")), "--ranks 8 (it was 16)"));
}

TEST(ScaleConfig, EndsInThePhaseOfTheWholeExperiment) {
  const TrainConfig full = experiment_config(find_experiment("vgg16_cifar10"));
  const auto last_cycle = [](const TrainConfig& config) {
    const double cycles =
        static_cast<double>(config.steps) / static_cast<double>(ab_settings(config).schedule.cycle_steps);
    return cycles - std::floor(cycles);
  };
  for (const double scale : {0.5, 0.1, 0.02})
    EXPECT_NEAR(last_cycle(scale_config(full, scale)), last_cycle(full), 0.04);
}

TEST(ScaleConfig, EveryScaledExperimentStillPlans) {
  for (const Experiment& experiment : experiments())
    for (const double scale : {0.3, 0.02, 0.001}) {
      if (!experiment.is_of_paper) continue;
      SCOPED_TRACE(fmt::format("{} {}", experiment.name, scale));
      const TrainConfig config = experiment_config(experiment, {.scale = scale});
      EXPECT_GT(plan_experiment(config, {.ratio = 0.25}).at(0).figures.low_rank_steps, 0);
    }
}

TEST(ScaleConfig, FlagsWin) {
  const Experiment& experiment = find_experiment("resnet50_4k");
  const TrainConfig config =
      experiment_config(experiment, {.scale = 0.1, .flags = {{"ranks", "4"}, {"steps", "77"}, {"lr", "0.5"}}});
  EXPECT_EQ(config.ranks, 4);
  EXPECT_EQ(ab_settings(config).group_size, 2) << "nodes and groups follow the number of ranks";
  EXPECT_EQ(config.steps, 77);
  EXPECT_EQ(config.lr, 0.5);
  const TrainConfig own =
      experiment_config(experiment, {.scale = 0.001, .flags = {{"ranks", "16"}, {"batch_size", "999"}}});
  EXPECT_EQ(own.ranks, 16) << "as the whole experiment has";
  EXPECT_EQ(own.ranks_per_node, 4);
  EXPECT_EQ(own.train_samples, 16 * 999) << "a batch for every rank";
}

class CliReproduceTest : public ab::test::ProgramTest {
 protected:
  /// The cells of the row of a Markdown table that begins with `name`.
  static std::vector<std::string> row(const std::string& text, const std::string& name) {
    std::istringstream lines(text.substr(std::min(text.find("| " + name + " "), text.size())));
    std::string line, cell;
    std::getline(lines, line);
    std::istringstream cells(line);
    std::vector<std::string> found;
    while (std::getline(cells, cell, '|')) {
      const auto first = cell.find_first_not_of(' ');
      if (first != std::string::npos) found.push_back(cell.substr(first, cell.find_last_not_of(' ') + 1 - first));
    }
    return found;
  }
};

TEST_F(CliReproduceTest, ListsAndPlans) {
  const auto list = run("reproduce");
  EXPECT_EQ(list.exit_code, 0) << list.err;
  for (const Released& released : kReleased) EXPECT_TRUE(contains(list.out, released.name));
  const auto one = run("reproduce resnet50_4k --dry-run");
  EXPECT_EQ(one.exit_code, 0) << one.err;
  EXPECT_EQ(row(one.out, "saved, whole run, all bytes").size(), 6u) << "published, and planned at four fractions";
  EXPECT_EQ(row(one.out, "saved, whole run, all bytes").at(1), "70.31 %");
  EXPECT_EQ(row(run("reproduce vgg16_cifar10 --dry-run --ratio 0.1").out, "compression").at(1), "44.14 : 1");

  const auto brief = run("reproduce all --dry-run --out " + path("all"));
  EXPECT_EQ(brief.exit_code, 0) << brief.err;
  EXPECT_TRUE(contains(brief.out, "saves 47.82 % of all bytes at r/n 1/2 and 58.20 % at 1/16")) << brief.out;
  EXPECT_TRUE(contains(brief.out, "1 of 6 ways to count reach that: low-rank steps alone, all bytes")) << brief.out;
  EXPECT_FALSE(contains(brief.out, "resnet50_4k")) << brief.out;
  const std::string all = read_file(path("all/reproduce.md"), ErrorKind::data);
  for (const Released& released : kReleased) EXPECT_EQ(row(all, released.name).size(), 10u) << released.name;
  for (const TrafficDefinition& definition : kTrafficDefinitions)
    EXPECT_EQ(row(all, definition.name).size(), 6u) << definition.name;
  const auto verbose = run("reproduce all --dry-run --verbose --ratio 0.25 --out " + path("all"));
  EXPECT_EQ(verbose.out, read_file(path("all/reproduce.md"), ErrorKind::data));
  expect_failure("reproduce resnet50_4k --dry-run --verbose", 2, "--verbose");
}

TEST_F(CliReproduceTest, HelpHasTheValuesOfTheExperiment) {
  const std::string help = run("reproduce vgg16_cifar10 --help").out;
  for (const char* value : {"default vgg16)", "default 15000)", "default 0.003)", "--ab.cycle-steps"})
    EXPECT_TRUE(contains(help, value)) << value;
  EXPECT_FALSE(contains(run("reproduce --help").out, "15000"));
}

TEST_F(CliReproduceTest, WrongUseIsExitTwo) {
  expect_failure("reproduce resnet50_4kk", 2, "did you mean resnet50_4k?");
  expect_failure("reproduce zzz", 2, "abtrain reproduce lists them");
  expect_failure("reproduce all", 2, "--dry-run");
  expect_failure("reproduce resnet50_4k --dry-run --scale 2", 2, "--scale");
  expect_failure("reproduce resnet50_4k --dry-run --config x", 2, "--config");
  expect_failure("reproduce resnet50_4k", 2, "--data-dir");
  expect_failure("reproduce vgg16_cifar10 --dry-run --factors-from " + path("none"), 3, "none");
}

TEST_F(CliReproduceTest, TrainsDenseAndAbInSmall) {
  const std::string command = fmt::format(
      "reproduce vgg16_cifar10 --scale 0.002 --model mlp --width 0.05 --data-dir {} --train-samples 40 "
      "--val-samples 16 "
      "--batch-size 4 --eval-every 1 --ab.ratio 0.25 --out {}",
      small_cifar(), path("small"));
  const auto first = run(command);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const std::string report = read_file(path("small/reproduce.md"), ErrorKind::data);
  EXPECT_TRUE(first.out.ends_with(report));
  EXPECT_TRUE(contains(report, "--steps 30 (it was 15000)"));
  EXPECT_TRUE(contains(report, "--ranks 4 (it was 8)"));
  EXPECT_EQ(row(report, "top-1, AB over dense").size(), 4u) << "published, planned, trained";
  for (const char* figure : {"saved, whole run, all bytes", "saved, whole run, between nodes",
                             "saved, low-rank steps alone, all bytes", "compression"}) {
    const std::vector<std::string> cells = row(report, figure);
    ASSERT_EQ(cells.size(), 4u) << figure;
    EXPECT_EQ(cells[2], cells[3]) << figure << ": the plan is what training counts";
    EXPECT_NE(cells[3], "-") << figure;
  }
  EXPECT_EQ(read_run(path("small/dense")).summary.method, "dense");
  const Summary ab_run = read_run(path("small/ab")).summary;
  EXPECT_EQ(ab_run.method, "ab");
  EXPECT_EQ(ab_run.steps, 30);

  EXPECT_TRUE(contains(first.err, "left for 2 runs, at ")) << first.err;

  const auto again = run(command);
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_TRUE(contains(again.out, "is complete"));
  EXPECT_EQ(read_file(path("small/reproduce.md"), ErrorKind::data), report);
  expect_failure(command + " --lr 0.5", 2, "--lr");
  expect_failure("reproduce resnet50_4k --dry-run --factors-from " + path("small/ab"), 2, "is a run of mlp");
}

TEST_F(CliReproduceTest, TrainsMethodsSideBySide) {
  const std::string command = fmt::format(
      "reproduce cifar10_94 --width 0.1 --data-dir {} --train-samples 40 --val-samples 16 --batch-size 2 --epochs 3 --log-every 1 "
      "--ab.first-split 2 --ab.cycle-steps 3 --ab.full-rank-steps 1 --late-cut.at 0.6 --out {}",
      small_cifar(), path("small"));
  const auto first = run(command);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_TRUE(contains(first.err, "left for 3 runs, at ")) << first.err;
  for (const char* method : {"dense", "ab", "late-cut"}) {
    const Summary summary = read_run(path("small/") + method).summary;
    EXPECT_EQ(summary.method, method);
    EXPECT_EQ(summary.steps, 15) << method;
  }
  const std::string compared = run(fmt::format("compare {0}/dense {0}/ab {0}/late-cut", path("small"))).out;
  EXPECT_TRUE(contains(first.out, compared)) << "the same table as that of compare";
  const std::string page = read_file(path("small/report.html"), ErrorKind::data);
  for (const char* method : {"dense", "ab", "late-cut"}) EXPECT_TRUE(contains(page, method)) << method;
  const auto again = run(command);
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_TRUE(contains(again.out, "is complete"));
  expect_failure(command + " --scale 0.5", 2, "--scale");
  expect_failure(command + " --dry-run", 2, "--out");
  const auto plan = run("reproduce cifar10_94 --dry-run");
  for (const char* method : {"dense", "ab", "late-cut"})
    EXPECT_TRUE(contains(plan.out, method)) << plan.out << plan.err;
  expect_failure(command + " --daso.patience 4", 2, "--daso.patience is a setting of method daso");
  EXPECT_EQ(run("reproduce cifar10_94 --dry-run --powersgd.rank 4 --dense-steps 50").exit_code, 0) << "of the late cut";
  const std::string local = " --late-cut.low-rank-method local --local.average-every 8";
  EXPECT_EQ(run("reproduce cifar10_94 --dry-run" + local).exit_code, 0) << "of the late cut that these flags choose";
}

}  // namespace
}  // namespace ab
