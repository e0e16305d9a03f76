// SPDX-License-Identifier: MIT
//
// Run folders, the comparison of runs, and the drawings in it.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "apps/commands/commands.h"
#include "apps/report/comparison.h"
#include "apps/report/svg_chart.h"
#include "apps/report/terminal.h"
#include "apps/train/run_folder.h"
#include "engine/core/atomic_file.h"
#include "engine/io/safetensors.h"
#include "tests/error_message.h"
#include "tests/folder_test.h"

namespace fs = std::filesystem;
using namespace ab;
using ab::test::contains;
using ab::test::message_of;

namespace {

Summary example_summary(const std::string& method, double wire_bytes) {
  Summary s;
  s.method = method, s.model = "resnet20", s.dataset = "cifar10";
  s.world_size = 4, s.steps = 100, s.epochs = 2, s.seed = 3;
  s.train_seconds = 12.5, s.images_per_second = 1000;
  s.final_val_loss = 0.7, s.final_val_top1 = 0.7512, s.final_val_top5 = 0.98, s.best_val_top1 = 0.76;
  s.val_samples = 10000, s.parameters_full = 270000, s.parameters_final = 150000, s.compression_ratio = 1.8;
  s.wire_bytes_per_rank_total = wire_bytes;
  s.wire_bytes_by_rank = {wire_bytes, wire_bytes, wire_bytes, wire_bytes};
  s.wire_bytes_per_rank_by_phase = {{"warmup", wire_bytes / 4}, {"low-rank", wire_bytes * 3 / 4}};
  s.steps_by_phase = {{"warmup", 25}, {"low-rank", 75}};
  s.per_layer = {{"layer1.0.conv1.weight", 144, 16, 8}};
  return s;
}

class ReportTest : public test::FolderTest {
 protected:
  /// A finished run with a split in it.
  std::string make_run(const std::string& name, const std::string& method, double wire_bytes) {
    const std::string folder = folder_ + "/" + name;
    fs::create_directories(folder);
    write_file_atomically(in_folder(folder, kSummaryFile), to_json(example_summary(method, wire_bytes)));
    MetricsLog log(in_folder(folder, kMetricsFile));
    for (int step = 10; step <= 100; step += 10)
      log.write(StepMetrics{step, step / 51, "warmup", 2.0 - step * 0.01, 0.1, 900, wire_bytes * step / 100});
    log.write(EpochMetrics{0, 50, 1.2, 0.5, 0.9});
    log.write(EpochMetrics{1, 100, 0.7, 0.7512, 0.98});
    if (method == "ab") log.write(SplitMetrics{25, {{"layer1.0.conv1.weight", 144, 16, 8}, {"fc.weight", 64, 10, 3}}});
    return folder;
  }
};

TEST_F(ReportTest, SummaryComesBack) {
  const Summary s = example_summary("ab", 1.5e6);
  const std::string text = to_json(s);
  EXPECT_EQ(to_json(summary_from_json(text, "s.json")), text);
  const Summary back = summary_from_json(text, "s.json");
  EXPECT_EQ(back.per_layer, s.per_layer);
  EXPECT_EQ(back.wire_bytes_per_rank_by_phase, s.wire_bytes_per_rank_by_phase);
  EXPECT_TRUE(std::isnan(back.compression_seconds)) << "not measured";
  Summary diverged = s;
  diverged.final_val_loss = std::nan("");
  EXPECT_TRUE(contains(to_json(diverged), "\"final_val_loss\": null"));
  EXPECT_TRUE(std::isnan(summary_from_json(to_json(diverged), "s.json").final_val_loss));
}

TEST_F(ReportTest, BrokenSummariesNameFileAndField) {
  EXPECT_TRUE(
      contains(message_of(ErrorKind::data, [] { summary_from_json("[]", "s.json"); }), "s.json is not a summary"));
  EXPECT_TRUE(contains(message_of(ErrorKind::data, [] { summary_from_json("{}", "s.json"); }), "lacks \"method\""));
  std::string text = to_json(example_summary("ab", 1));
  text.replace(text.find("\"world_size\": 4"), 15, "\"world_size\": \"4\"");
  EXPECT_TRUE(contains(message_of(ErrorKind::data, [&] { summary_from_json(text, "s.json"); }),
                       "\"world_size\" has the wrong type"));
}

TEST_F(ReportTest, ReadsARunAndSkipsACutLine) {
  const std::string folder = make_run("one", "ab", 1e6);
  write_file_atomically(in_folder(folder, kMetricsFile),
                        read_file(in_folder(folder, kMetricsFile), ErrorKind::data) + "{\"kind\":\"st");
  const ab::Run run = read_run(folder + "/");
  EXPECT_EQ(run.label, "one");
  EXPECT_EQ(run.steps.size(), 10u);
  EXPECT_EQ(run.epochs.size(), 2u);
  ASSERT_EQ(run.splits.size(), 1u);
  EXPECT_EQ(run.splits[0].layers[1].r, 3);
  write_file_atomically(in_folder(folder, kMetricsFile), "no\nmetrics\n");
  EXPECT_TRUE(contains(message_of(ErrorKind::data, [&] { read_run(folder); }), "none of its 2 lines"));
}

TEST_F(ReportTest, SavingCountsAgainstTheFirstDenseRun) {
  std::vector<ab::Run> runs{read_run(make_run("ab", "ab", 4e5)), read_run(make_run("dense", "dense", 1e6))};
  const ab::Run* baseline = dense_baseline(runs);
  ASSERT_EQ(baseline, &runs[1]);
  EXPECT_DOUBLE_EQ(wire_saving(runs[0], baseline), 0.6);
  EXPECT_TRUE(std::isnan(wire_saving(runs[1], baseline)));
  runs[0].summary.model = "mlp";
  EXPECT_TRUE(std::isnan(wire_saving(runs[0], baseline)));
  EXPECT_EQ(dense_baseline({}), nullptr);
}

TEST_F(ReportTest, TableShowsPercentAndBytes) {
  const std::string text =
      compare_text({read_run(make_run("dense", "dense", 1e6)), read_run(make_run("ab", "ab", 4e5))}, 100);
  for (const char* part : {"75.12 %", "76.00 %", "1.00 MB", "400 kB", "60.00 %", "resnet20 on cifar10, 4 ranks", "1.80",
                           "12.5 s", "low-rank", "300 kB in 75"})
    EXPECT_TRUE(contains(text, part)) << text;
}

TEST_F(ReportTest, WhatIsSavedSaysInWhichTypes) {
  std::vector<ab::Run> runs{read_run(make_run("dense", "dense", 1e6)), read_run(make_run("ab", "ab", 4e5))};
  const auto has = [&](const std::string& part) { return contains(report_html(runs), part); };
  EXPECT_TRUE(has("<dt>against dense</dt>")) << "nobody knows the types";
  for (ab::Run& run : runs) run.config.emplace();
  runs[1].config->comm_dtype = DType::bfloat16;
  EXPECT_TRUE(has("<dt>wire per rank in bf16</dt><dd>400 kB</dd><dt>against dense in fp32</dt><dd>60.0 % saved</dd>"));
  EXPECT_TRUE(has("<th>sent in<th>wire per rank"));
  EXPECT_TRUE(has("<td>bf16<td>400 kB<td>60.0 %"));
  runs[1].summary.wire_bytes_per_rank_total = 2.7032e6;
  EXPECT_TRUE(has("<td>2.7 × as much"));
  EXPECT_TRUE(has("<dd>2.7 × as much</dd>"));
  EXPECT_TRUE(contains(compare_text(runs, 100), "  2.70 × as much  "));
}

TEST_F(ReportTest, PhasesComeInTheOrderOfTraining) {
  std::vector<ab::Run> runs{read_run(make_run("ab", "ab", 4e5))};
  runs[0].summary.wire_bytes_per_rank_by_phase["setup"] = 1;
  runs[0].summary.wire_bytes_per_rank_by_phase["silent"] = 0;
  EXPECT_EQ(phases_of(runs), (std::vector<std::string>{"setup", "warmup", "low-rank"}));
}

TEST_F(ReportTest, DifferentSetupsAreNamedInTheTable) {
  std::vector<ab::Run> runs{read_run(make_run("dense", "dense", 1e6)), read_run(make_run("ab", "ab", 4e5))};
  runs[1].summary.world_size = 8;
  EXPECT_TRUE(contains(compare_text(runs, 100), "resnet20 on cifar10, 8 ranks"));
  runs[1].summary.world_size = 1;
  EXPECT_TRUE(contains(compare_text(runs, 100), "resnet20 on cifar10, 1 rank\n"));
}

TEST_F(ReportTest, PageIsCompleteAndLoadsNothing) {
  std::vector<ab::Run> runs{read_run(make_run("dense", "dense", 1e6)), read_run(make_run("ab", "ab", 4e5))};
  runs[1].label = "<script>alert(1)</script>";
  const std::string html = report_html(runs);
  EXPECT_TRUE(html.starts_with("<!doctype html>"));
  for (const char* part :
       {"Training loss", "Accuracy on the validation images", "Bytes sent by rank 0", "Bytes by phase",
        "Rank r of every layer", ">8 of 16<", "layer1.0.conv1.weight (144×16): r = 8 from step 25 to 100", "60.0 %",
        "prefers-color-scheme: dark", "</html>"})
    EXPECT_TRUE(contains(html, part)) << part;
  for (const char* outside : {"http:", "https:", "<script", "<link", "src=", "@import", "url(", "nan", "inf,"})
    EXPECT_EQ(html.find(outside), std::string::npos) << outside;
  const auto count = [&](const std::string& tag) {
    std::size_t n = 0;
    for (std::size_t at = html.find(tag); at != std::string::npos; at = html.find(tag, at + 1)) ++n;
    return n;
  };
  for (const char* tag : {"svg", "figure", "section", "table", "g", "text", "title", "div", "article"})
    EXPECT_EQ(count(fmt::format("<{}>", tag)) + count(fmt::format("<{} ", tag)), count(fmt::format("</{}>", tag)))
        << tag;
}

/// A run of method and seed with that accuracy, bytes and parameters.
ab::Run run_of(const std::string& method, std::uint64_t seed, double top1, double bytes, std::int64_t parameters) {
  ab::Run run;
  run.label = fmt::format("{}_{}", method, seed);
  run.summary = example_summary(method, bytes);
  run.summary.sent_bytes_per_rank_total = bytes;
  run.summary.final_val_top1 = top1;
  run.summary.parameters_final = parameters;
  run.summary.seed = seed;
  run.config.emplace();
  run.config->method = method;
  run.config->seed = seed;
  return run;
}

TEST_F(ReportTest, RunsThatDifferInTheirSeedAreOnePointWithASpread) {
  std::vector<ab::Run> runs{run_of("dense", 0, 0.80, 8e6, 100), run_of("dense", 1, 0.84, 8e6, 100),
                            run_of("ab", 0, 0.81, 1e6, 30), run_of("dense", 2, 0.82, 8e6, 100)};
  std::vector<Contest> contests = contests_of(runs);
  ASSERT_EQ(contests.size(), 1u);
  ASSERT_EQ(contests[0].groups.size(), 2u);
  const RunGroup& dense = contests[0].groups[0];
  EXPECT_EQ(dense.label, "dense");
  EXPECT_EQ(dense.runs.size(), 3u);
  EXPECT_NEAR(dense.top1, 0.82, 1e-12);
  EXPECT_EQ(dense.lowest_top1, 0.80);
  EXPECT_EQ(dense.highest_top1, 0.84);
  EXPECT_EQ(cost_of(dense, costs()[0]), 8e6);
  runs[1].config->lr *= 2;
  EXPECT_EQ(contests_of(runs)[0].groups.size(), 3u) << "another learning rate is another row";
  runs[1].config.reset();
  EXPECT_EQ(contests_of(runs)[0].groups.size(), 3u) << "nobody knows what it was trained with";
  runs[2].summary.world_size = 8;
  EXPECT_EQ(contests_of(runs).size(), 2u);
}

TEST_F(ReportTest, RunsOfOneSeedAreNotTakenForSeveral) {
  EXPECT_TRUE(contains(frontier_text({run_of("dense", 0, 0.80, 8e6, 100), run_of("dense", 1, 0.80, 8e6, 100),
                                      run_of("dense", 1, 0.80, 8e6, 100), run_of("ab", 0, 0.81, 1e6, 30)}),
                       "3 (2 seeds)  80.00 %"));
}

TEST_F(ReportTest, RunsThatDifferInMoreThanTheSeedAreNotAveraged) {
  std::vector<ab::Run> runs{run_of("dense", 0, 0.80, 8e6, 100), run_of("dense", 1, 0.80, 8e6, 100)};
  EXPECT_EQ(contests_of(runs)[0].groups.size(), 1u);
  runs[1].config->bucket_mb = 16;
  EXPECT_EQ(contests_of(runs)[0].groups.size(), 2u) << "which changes the time";
}

TEST_F(ReportTest, RunsThatSawOtherValidationImagesAreNotCompared) {
  std::vector<ab::Run> runs{run_of("dense", 0, 0.82, 8e6, 100), run_of("ab", 0, 0.81, 1e6, 30)};
  runs[1].summary.val_samples -= 1;  // which could not be read
  EXPECT_EQ(contests_of(runs).size(), 1u);
  runs[1].config->val_samples = 100;
  EXPECT_EQ(contests_of(runs).size(), 2u);
  EXPECT_TRUE(contains(compare_text(runs, 100), "resnet20 on cifar10, 4 ranks, 100 test images\n"));
  runs[1].config->val_from_train = 100;
  EXPECT_TRUE(contains(compare_text(runs, 100), "4 ranks, 100 training images to validate on\n"));
}

TEST_F(ReportTest, WhatAnotherIsBetterThanEverywhereIsDominated) {
  const std::vector<ab::Run> runs{run_of("dense", 0, 0.82, 8e6, 100), run_of("ab", 0, 0.81, 1e6, 30),
                                  run_of("powersgd", 0, 0.81, 1e6, 100), run_of("local", 0, 0.80, 2e6, 20)};
  const Contest contest = contests_of(runs)[0];
  const std::vector<const Cost*> measured = contest.costs();
  ASSERT_EQ(measured.size(), 2u) << "time is the same for all, and nothing else was measured";
  EXPECT_STREQ(measured[0]->name, "sent per rank");
  EXPECT_STREQ(measured[1]->name, "parameters");
  const auto dominator = [&](std::size_t i, const std::vector<const Cost*>& by) {
    const RunGroup* found = dominator_of(contest.groups[i], contest.groups, by);
    return found ? found->label : "";
  };
  EXPECT_EQ(dominator(0, measured), "") << "the most accurate";
  EXPECT_EQ(dominator(1, measured), "");
  EXPECT_EQ(dominator(2, measured), "ab_0") << "as accurate for as many bytes, with a smaller model";
  EXPECT_EQ(dominator(3, measured), "") << "the smallest model";
  EXPECT_EQ(dominator(3, {measured[0]}), "ab_0");
  EXPECT_EQ(dominator(2, {measured[0]}), "") << "equal points do not dominate each other";
  std::vector<ab::Run> timed = runs;
  const auto dominators = [&] {
    const Contest of_timed = contests_of(timed)[0];
    return std::ranges::count_if(of_timed.groups, [&](const RunGroup& group) {
      return dominator_of(group, of_timed.groups, of_timed.costs()) != nullptr;
    });
  };
  timed[1].summary.train_seconds *= 1.04;
  EXPECT_EQ(dominators(), 1) << "by less than chance slower";
  timed[1].summary.train_seconds *= 1.04;
  EXPECT_EQ(dominators(), 0);
  const std::string text = frontier_text(runs), charts = frontier_charts(runs);
  EXPECT_TRUE(contains(text, "dominated by")) << text;
  EXPECT_EQ(frontier_text({runs[0]}) + frontier_charts({runs[0]}), "");
  for (const char* part : {"Accuracy against bytes sent per rank", "Accuracy against parameters",
                           "class=\"point dominated\"", "local_0: 80 % (80 % to 80 %) for 2.00 MB"})
    EXPECT_TRUE(contains(charts, part)) << part;
  EXPECT_EQ(charts.find("nan"), std::string::npos);
}

TEST_F(ReportTest, ChartsSurviveWhatRunsLeaveBehind) {
  LineChart chart{"t", "how", {"x"}, {"y"}, false, {}, {}};
  EXPECT_TRUE(contains(draw(chart), "Nothing was recorded"));
  chart.curves = {{"a", {{1, std::nan("")}, {2, INFINITY}}, 0, false}};
  EXPECT_TRUE(contains(draw(chart), "Nothing was recorded"));
  chart.curves = {{"a", {{5, 3}}, 9, true}};  // one point, a colour past the eighth
  EXPECT_TRUE(contains(draw(chart), "dashed"));
  EXPECT_EQ(draw(chart).find("nan"), std::string::npos);
  chart.curves[0].points.clear();
  for (int i = 0; i < 100000; ++i) chart.curves[0].points.push_back({double(i), std::sin(i * 0.001)});
  EXPECT_LT(draw(chart).size(), 60000u);
  EXPECT_TRUE(contains(draw(RowChart{.title = "t", .how = "how", .x = {"x", NumberStyle::bytes}, .rows = {{"run"}}}),
                       "Nothing was sent"));
}

TEST_F(ReportTest, ChartsMarkTheFirstSplitOfARun) {
  std::vector<ab::Run> runs{read_run(make_run("dense", "dense", 1e6)), read_run(make_run("ab", "ab", 4e5)),
                            read_run(make_run("again", "ab", 4e5))};
  const auto count = [&](const std::string& part) {
    const std::string html = report_html(runs);
    int n = 0;
    for (std::size_t at = html.find(part); at != std::string::npos; at = html.find(part, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count("<g class=\"mark k1\"><title>ab: split after step 25</title>"), 4) << "loss, accuracy, bytes, both";
  EXPECT_EQ(count(">split</text>"), 4) << "two lines at one place have one word";
  runs[1].splits.push_back(runs[1].splits[0]);
  runs[1].splits[1].step = 50;
  EXPECT_EQ(count("<title>ab: split after step 25, the first of 2 splits</title>"), 4);
  EXPECT_EQ(count("r = 8 from step 25 to 100"), 2) << "one band for each run, since the second split chose the same r";
  runs[1].splits[1].layers[0].r = 9;
  EXPECT_EQ(count("r = 8 from step 25 to 50"), 1);
  runs[2].splits[0].sensitivity[0] = {0.9, 0.1, {0, 1}, {0, 1}};
  EXPECT_EQ(count("<title>again: cut after step 25</title>"), 4);
}

TEST_F(ReportTest, GreyCurvesAreNamedOnHoverAlone) {
  const std::vector<Point> points{{0, 0}, {1, 1}};
  const std::string svg =
      draw(LineChart{"t", "how", {"x"}, {"y"}, false, {{"first", points}, {"rest", points, kGrey}}, {}});
  EXPECT_TRUE(contains(svg, "</i>first</span>"));
  EXPECT_FALSE(contains(svg, "</i>rest</span>"));
  EXPECT_LT(svg.find("<title>rest</title>"), svg.find("<title>first</title>")) << "behind the others";
}

TEST_F(ReportTest, AxesHaveUnits) {
  const auto has = [](NumberStyle style, double high, const std::string& tick, const std::string& label) {
    const std::string svg = draw(LineChart{"t", "how", {"x", style}, {"y"}, false, {{"c", {{0, 0}, {high, 1}}}}, {}});
    return contains(svg, ">" + tick + "</text>") && contains(svg, ">" + label + "</text>");
  };
  EXPECT_TRUE(has(NumberStyle::bytes, 2e7, "20", "x, MB"));
  EXPECT_TRUE(has(NumberStyle::percent, 0.5, "50", "x, %"));
  EXPECT_TRUE(has(NumberStyle::seconds, 200, "200", "x, s"));
  EXPECT_TRUE(has(NumberStyle::seconds, 7200, "120", "x, min"));
  EXPECT_TRUE(has(NumberStyle::seconds, 36000, "10", "x, h"));
  EXPECT_TRUE(has(NumberStyle::plain, 9000, "8000", "x"));
  EXPECT_TRUE(has(NumberStyle::plain, 30000, "30", "x, thousands"));
}

TEST_F(ReportTest, AxesHaveRoundTicks) {
  EXPECT_EQ(axis_ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_FALSE(std::signbit(axis_ticks(0, 10, 5).front()));
  EXPECT_EQ(axis_ticks(0.13, 0.52, 4).front(), 0.2);
  EXPECT_EQ(axis_ticks(3, 3, 5), (std::vector<double>{3}));
  for (const double low : {2.3, -2.3, 1e300, 1e-300})
    for (const double width : {1.0, 2.0, 7.0, 1000.0, 1e7}) {
      const double high = low + width * (std::nextafter(std::abs(low), INFINITY) - std::abs(low));
      EXPECT_LE(axis_ticks(low, high, 5).size(), 12u) << low << ", " << width;
    }
}

TEST_F(ReportTest, NumbersReadWell) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(999), "999 B");
  EXPECT_EQ(human_bytes(999.7), "1.00 kB");
  EXPECT_EQ(human_bytes(1234567), "1.23 MB");
  EXPECT_EQ(human_bytes(99950000), "100 MB");
  EXPECT_EQ(human_count(270410), "270 k");
  EXPECT_EQ(human_count(12), "12");
  EXPECT_EQ(counted(1, "rank"), "1 rank");
  EXPECT_EQ(counted(4, "rank"), "4 ranks");
  EXPECT_EQ(human_seconds(3.14), "3.1 s");
  EXPECT_EQ(human_seconds(192), "3 min 12 s");
  EXPECT_EQ(human_seconds(3 * 3600 + 60), "3 h 01 min");
  EXPECT_EQ(shorten("abcdefghij", 5), "ab…ij");
  EXPECT_EQ(shorten("äöü", 3), "äöü");
  EXPECT_EQ(wrap("one two three", 7), "one two\nthree");
  EXPECT_EQ(wrap("longword a", 3), "longword\na");
  EXPECT_EQ(wrap("", 3), "");
  EXPECT_EQ(bar(0.5, 4), "██  ");
  EXPECT_EQ(spark_bars({8, 4, 0}), "█▅▁");
}

TEST_F(ReportTest, AveragesBetweenStepsAreExposedCommunicationAndValidationsAreNot) {
  Summary s;
  EXPECT_EQ(exposed_seconds(s), 0);
  s.waiting_seconds_by_phase = {{"local", 1}, {"outer", 2}, {"setup", 4}, {"evaluation", 8}, {"control", 16}};
  EXPECT_EQ(exposed_seconds(s), 3);
}

TEST_F(ReportTest, RunFoldersAreProtected) {
  TrainConfig config = resolve_train_config({}, "");
  config.out = folder_ + "/new/run";
  check_run_folder(config);
  EXPECT_FALSE(fs::exists(folder_ + "/new"));
  create_run_folder(config);
  begin_run_folder(config);
  EXPECT_TRUE(fs::exists(in_folder(config.out, kConfigFile)));
  check_run_folder(config);  // no results yet
  write_file_atomically(in_folder(config.out, kSummaryFile), "{}");
  EXPECT_TRUE(
      contains(message_of(ErrorKind::config, [&] { check_run_folder(config); }), "already holds a run (summary.json)"));
  config.overwrite = true;
  begin_run_folder(config);
  EXPECT_FALSE(fs::exists(in_folder(config.out, kSummaryFile)));
  config.out = in_folder(config.out, kConfigFile);
  EXPECT_TRUE(contains(message_of(ErrorKind::config, [&] { check_run_folder(config); }), "is not a folder"));
}

TEST_F(ReportTest, InspectShowsFactorsAndSpectra) {
  const std::string file = folder_ + "/m.safetensors";
  // W = diag(4, 2) beside zeros: 3×2, as it is and as factors; a flat convolution wider than tall; a broken
  // layer.
  write_safetensors(file, {{{"model", "tiny"}, {"factored", R"({"thin.weight":[4,3],"flat.weight":[2,2,2,2]})"}},
                           {{"dense.weight", Tensor::from(std::vector<float>{4, 0, 0, 2, 0, 0}, {3, 2})},
                            {"thin.weight.a", Tensor::from(std::vector<float>{0, 3, 4, 0}, {4, 1})},
                            {"thin.weight.b", Tensor::from(std::vector<float>{2, 0, 0}, {1, 3})},
                            {"flat.weight.a", Tensor::from(std::vector<float>{1, 0, 0, 0, 0, 0, 0, 0}, {8, 1})},
                            {"flat.weight.b", Tensor::from(std::vector<float>{7, 0}, {1, 2})},
                            {"bn.num_batches_tracked", Tensor::from(std::vector<std::int64_t>{9}, Shape{})},
                            {"broken.weight", Tensor::from(std::vector<float>{NAN, 0, 0, 1}, {2, 2})},
                            {"dense.bias", Tensor::zeros({3})}}});
  const std::string text = inspect_text(file, 120);
  for (const char* part : {"model tiny", "dense", "3×2", "full", "2 of 2", "thin ", "4×3", "1/3", "1 of 3", "2×2×2×2",
                           "1/2", "1 of 2", "not finite", "dense.bias"})
    EXPECT_EQ(std::string(part) != "dense.bias", bool(contains(text, part))) << part << "\n" << text;
  EXPECT_TRUE(contains(text, "3 in vectors and statistics"));
}

}  // namespace
