// SPDX-License-Identifier: MIT
//
// The program, told to stop by a signal and started again.
#include <algorithm>
#include <csignal>
#include <fstream>

#include "apps/methods/late_cut.h"
#include "apps/train/run_folder.h"
#include "apps/train/stop_request.h"
#include "engine/io/checkpoint_folder.h"
#include "engine/io/safetensors.h"
#include "engine/sync/acpsgd.h"
#include "tests/program_test.h"

namespace ab {
namespace {

namespace fs = std::filesystem;

class ResumeCommandTest : public test::ProgramTest {
 protected:
  /// A run through many phases, of about a second.
  std::string train(const std::string& more) const {
    return fmt::format(
        "train --model mlp --width 0.05 --dataset cifar10 --data-dir {} --batch-size 2 --steps 2500 --lr 0.01 --log-every 1 "
        "--method ab --ranks 2 --ab.first-split 20 --ab.cycle-steps 40 --ab.full-rank-steps 10 {}",
        small_cifar(), more);
  }

  /// Sends `signal` as soon as the first step is logged. (What sh starts in the background ignores SIGINT.)
  test::Outcome run_and_signal(const std::string& arguments, const std::string& out, const char* signal) const {
    const std::string launcher = fmt::format(
        "sh -c 'env --default-signal=INT \"$@\" & p=$!; while kill -0 $p && ! test -s {}/metrics.jsonl; do sleep 0.01; done; "
        "kill -{} $p; wait $p' sh",
        path(out), signal);
    return run(arguments + " --out " + path(out), launcher);
  }

  void expect_same_run(const std::string& a, const std::string& b) const {
    const ab::Run whole = read_run(path(a)), resumed = read_run(path(b));
    ASSERT_EQ(whole.steps.size(), resumed.steps.size());
    for (std::size_t i = 0; i < whole.steps.size(); ++i) {
      ASSERT_EQ(whole.steps[i].step, resumed.steps[i].step);
      ASSERT_EQ(whole.steps[i].loss, resumed.steps[i].loss) << "step " << whole.steps[i].step;
    }
    EXPECT_EQ(whole.epochs.size(), resumed.epochs.size());
    EXPECT_EQ(whole.splits.size(), resumed.splits.size());
    EXPECT_EQ(read_file(path(a) + "/model.safetensors", ErrorKind::data),
              read_file(path(b) + "/model.safetensors", ErrorKind::data));
  }
};

TEST_F(ResumeCommandTest, ASignalSavesAndTheNextStartGoesOn) {
  ASSERT_EQ(run(train("--out " + path("whole"))).exit_code, 0);
  for (const auto& [signal, exit_code] : {std::pair{"TERM", kStoppedExitCode},
                                          {"USR1", kStoppedExitCode},
                                          {"HUP", kStoppedExitCode},
                                          {"INT", 128 + SIGINT}}) {
    const std::string out = std::string("part_") + signal;
    const test::Outcome stopped = run_and_signal(train(""), out, signal);
    ASSERT_EQ(stopped.exit_code, exit_code) << stopped.err;
    EXPECT_TRUE(test::contains(stopped.out, "abtrain train --resume"));
    EXPECT_FALSE(fs::exists(path(out) + "/summary.json"));
    const test::Outcome resumed = run("train --resume " + path(out));
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_TRUE(test::contains(resumed.out, "resuming at step"));
    expect_same_run("whole", out);
  }
}

TEST_F(ResumeCommandTest, FilesAskForACheckpointAndForAStop) {
  const std::string out = path("part");
  ASSERT_EQ(run_and_signal(train(""), "part", "TERM").exit_code, kStoppedExitCode);
  std::ofstream(out + "/stop") << "left by the run before";
  fs::remove(out + "/metrics.jsonl");  // which the script waits for
  // Both are gone when they have been seen; nothing waits for a program that has ended.
  const std::string script = fmt::format(
      "\"$@\" & p=$!; cd {}; until_() {{ while kill -0 $p && ! eval $1; do sleep 0.01; done 2>/dev/null; }}; "
      "until_ \"test -s metrics.jsonl\"; touch save; until_ \"ls checkpoints | grep -q ^step_[0-9]*\\$\"; "
      "ls checkpoints >seen; touch stop; wait $p",
      out);
  std::string arguments = train("--overwrite --keep-checkpoints 9 --out " + out);
  arguments.replace(arguments.find("--steps 2500"), 12, "--steps 900000");
  const test::Outcome stopped = run(arguments, "sh -c '" + script + "' sh");
  ASSERT_EQ(stopped.exit_code, kStoppedExitCode) << stopped.err;
  EXPECT_TRUE(test::contains(read_file(out + "/seen", ErrorKind::data), "step_")) << "training went on after it";
  EXPECT_GE(checkpoints_in(out + "/checkpoints").size(), 2u);
  EXPECT_FALSE(fs::exists(out + "/stop"));
  EXPECT_FALSE(fs::exists(out + "/save"));
}

TEST_F(ResumeCommandTest, AutoIsOneCommandForStartResumeAndEnd) {
  ASSERT_EQ(run(train("--out " + path("whole"))).exit_code, 0);
  ASSERT_EQ(run_and_signal(train("--resume auto"), "part", "TERM").exit_code, kStoppedExitCode);
  ASSERT_EQ(run(train("--resume auto --out " + path("part"))).exit_code, 0);
  expect_same_run("whole", "part");
  const test::Outcome again = run(train("--resume auto --out " + path("part")));
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_TRUE(test::contains(again.out, "complete"));
}

TEST_F(ResumeCommandTest, ADamagedNewestCheckpointFallsBackWithAWarning) {
  ASSERT_EQ(run(train("--out " + path("whole"))).exit_code, 0);
  const std::string part = path("part");
  ASSERT_EQ(run_and_signal(train("--save-every 1"), "part", "TERM").exit_code, kStoppedExitCode);
  std::vector<std::string> saved;
  for (const auto& entry : fs::directory_iterator(part + "/checkpoints")) saved.push_back(entry.path().string());
  std::sort(saved.begin(), saved.end());
  ASSERT_EQ(saved.size(), 2u);
  for (const auto& entry : fs::directory_iterator(saved.back()))
    fs::resize_file(entry.path(), fs::file_size(entry.path()) / 2);
  const test::Outcome resumed = run("train --save-every 0 --resume " + part);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_TRUE(test::contains(resumed.err, saved.back()));
  EXPECT_TRUE(test::contains(resumed.out, saved.front()));
  expect_same_run("whole", "part");
}

TEST_F(ResumeCommandTest, WhatCannotBeResumedIsRefusedInOneSentence) {
  ASSERT_EQ(run_and_signal(train(""), "part", "TERM").exit_code, kStoppedExitCode);
  expect_failure("train --resume " + path("part") + " --lr 0.5", 2, "--lr 0.5 (it was 0.01)");
  expect_failure("train --resume " + path("part") + " --ranks 3", 2, "--ranks 3 (it was 2)");
  expect_failure("train --resume " + path("part") + " --out " + path("x"), 2, "leave --out away");
  expect_failure("train --resume " + path("nothing"), 2, "there is no run");
  expect_failure(train("--out " + path("part")), 2, "already holds a run");
  fs::remove_all(path("part") + "/checkpoints");
  expect_failure("train --resume " + path("part"), 4, "has no checkpoint");
  // As of a run that was killed while it saved its first one.
  fs::create_directories(path("part") + "/checkpoints/.saving_step_000000000001.7");
  const std::string log = read_file(path("part/metrics.jsonl"), ErrorKind::data);
  expect_failure("train --resume " + path("part"), 4, "has no checkpoint");
  EXPECT_EQ(read_file(path("part/metrics.jsonl"), ErrorKind::data), log);
  // One that was about to be replaced is put back first; this one cannot be read.
  fs::create_directories(path("part") + "/checkpoints/.saving_step_000000000005.7.replaced");
  EXPECT_EQ(run("train --resume " + path("part")).exit_code, 4);
  EXPECT_TRUE(fs::exists(path("part") + "/checkpoints/step_000000000005"));
  fs::remove_all(path("part") + "/checkpoints/step_000000000005");
  EXPECT_EQ(run(train("--resume auto --out " + path("part"))).exit_code, 0);
}

// A run is found from any folder, and remembers where its images went.
TEST_F(ResumeCommandTest, PathsAreOfNoWorkingFolder) {
  small_cifar();
  const std::string train =
      "train --model mlp --dataset cifar10 --data-dir data --batch-size 4 --steps 6 --lr 0.01 --log-every 1 --save-every 2";
  const auto in = [&](const std::string& folder, const std::string& arguments) {
    return run(arguments, fmt::format("sh -c 'cd {} && exec \"$@\"' sh", folder));
  };
  const auto cut_short = [&](const std::string& run) {  // as if it had been killed before its end
    fs::remove(path(run + "/summary.json"));
    fs::remove_all(checkpoint_path(path(run + "/checkpoints"), 6));
  };
  ASSERT_EQ(in(folder_, train + " --out whole").exit_code, 0);
  ASSERT_EQ(in(folder_, train + " --out part").exit_code, 0);
  cut_short("part");
  const test::Outcome resumed = in("/", "train --resume " + path("part"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  expect_same_run("whole", "part");

  fs::rename(path("data"), path("moved"));
  cut_short("part");
  ASSERT_EQ(in(folder_, "train --resume part --data-dir moved").exit_code, 0);
  cut_short("part");
  const test::Outcome once_more = in("/", "train --resume " + path("part"));
  EXPECT_EQ(once_more.exit_code, 0) << once_more.err;
  expect_same_run("whole", "part");
}

TEST_F(ResumeCommandTest, APathThatConfigTomlCannotKeepIsRefusedAtTheStart) {
  for (const char* bytes : {"a\xff", "\xc3", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80"}) {
    expect_failure(train("--out " + path(bytes)), 2, "--out holds bytes that are not UTF-8");
    EXPECT_FALSE(fs::exists(path(bytes)));
  }
  EXPECT_EQ(run(tiny_train("\xc3\xa9\xe2\x82\xac\xf0\x9f\x99\x82")).exit_code, 0);
}

TEST_F(ResumeCommandTest, WhatAKilledRunLeftHalfWrittenGoesWithTheNextStart) {
  ASSERT_EQ(run_and_signal(train("--resume auto"), "part", "KILL").exit_code, 128 + SIGKILL);
  for (const char* name : {"model.safetensors.123.0.tmp", "summary.json.9.12.tmp", "config.toml.1.0.tmp"})
    std::ofstream(path("part/") + name) << "half";
  for (const char* name : {"mine.tmp", "model.safetensors.tmp", "model.safetensors.1.tmp", "x.json.1.0.tmp"})
    std::ofstream(path("part/") + name) << "of somebody";
  const test::Outcome again = run(train("--resume auto --out " + path("part")));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_TRUE(test::contains(again.err, "ended before its first checkpoint and begins anew; --save-every"))
      << again.err;
  std::vector<std::string> stay;
  for (const auto& entry : fs::directory_iterator(path("part")))
    if (entry.path().extension() == ".tmp") stay.push_back(entry.path().filename());
  std::sort(stay.begin(), stay.end());
  EXPECT_EQ(stay, (std::vector<std::string>{"mine.tmp", "model.safetensors.1.tmp", "model.safetensors.tmp",
                                            "x.json.1.0.tmp"}));
}

TEST_F(ResumeCommandTest, ANewRunFolderIsOnDiskInAllItsParents) {
  const std::string trace_file = path("trace");
  const test::Outcome outcome =
      run(tiny_train("new/folder/run"),
          "env ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0 strace -f -y -qq -s 4096 -e trace=fsync -o " + trace_file);
  const std::string trace = fs::exists(trace_file) ? read_file(trace_file, ErrorKind::data) : "";
  if (trace.empty()) GTEST_SKIP() << "strace is not installed or not permitted here";
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const std::string& folder : {folder_, path("new"), path("new/folder"), path("new/folder/run")})
    EXPECT_TRUE(test::contains(trace, "<" + folder + ">) = 0"));
}

TEST_F(ResumeCommandTest, OtherPixelsUnderTheSameLabelsAreRefused) {
  ASSERT_EQ(run_and_signal(train(""), "part", "TERM").exit_code, kStoppedExitCode);
  const std::string file = path("data/data_batch_3.bin");
  std::string records = read_file(file, ErrorKind::data);
  for (std::size_t i = 1; i < records.size(); ++i)
    if (i % 3073 != 0) records[i] = static_cast<char>(~records[i]);
  write_file_atomically(file, records);
  expect_failure("train --resume " + path("part"), 3, "saved with other images");
}

TEST_F(ResumeCommandTest, CheckpointsWithoutTheirConfigAreRefused) {
  ASSERT_EQ(run_and_signal(train(""), "part", "TERM").exit_code, kStoppedExitCode);
  std::filesystem::remove(path("part/config.toml"));
  expect_failure(train("--resume auto --out " + path("part")), 4, "no config.toml that says how they were trained");
}

TEST_F(ResumeCommandTest, FilesThatNoRunLeftAreNotReplaced) {
  for (const char* file : {"model.safetensors", "model_average.safetensors", "config.toml"}) {
    const std::string out = path(std::string("mine_") + file), mine = out + "/" + file;
    fs::create_directories(out);
    std::ofstream(mine) << "mine";
    for (const char* resume : {"", "--resume auto "}) {
      const test::Outcome outcome = run(train(resume + std::string("--out ") + out));
      EXPECT_EQ(outcome.exit_code, 2) << file << ": " << outcome.err;
      EXPECT_EQ(read_file(mine, ErrorKind::data), "mine");
    }
  }
}

// An automatic multiple is a number as soon as a run has begun.
TEST_F(ResumeCommandTest, AnotherDeviceDoesNotChangeWhatRanksAreRoundedTo) {
  ASSERT_EQ(run(tiny_train("on_cpu") + " --method late-cut").exit_code, 0);
  TrainConfig config = resolve_train_config({{"method", "late-cut"}, {"device", "cuda"}, {"out", path("on_gpu")}}, "");
  EXPECT_EQ(config.rank_multiple, 0);
  create_run_folder(config);
  begin_run_folder(settle_config(config));
  const auto saved = [&](const std::string& folder) {
    return resolve_train_config({}, in_folder(path(folder), kConfigFile)).rank_multiple;
  };
  EXPECT_EQ(saved("on_cpu"), 1);
  EXPECT_EQ(saved("on_gpu"), 8);

  const auto resumed = [&](const std::string& folder, const std::string& device) {
    const TrainConfig asked = resolve_train_config({{"resume", path(folder)}, {"device", device}}, "");
    return settle_config(asked).rank_multiple;
  };
  EXPECT_EQ(resumed("on_cpu", "cuda"), 1);
  EXPECT_EQ(resumed("on_gpu", "cpu"), 8);
  config.device = "cpu";
  EXPECT_EQ(settle_config(config).rank_multiple, 1) << "a run of its own";
  config.resume = "auto";
  EXPECT_EQ(settle_config(config).rank_multiple, 8);
  EXPECT_EQ(start_of(settle_config(config)), Start::anew) << "refused, were it another run";
  config.rank_multiple = 4;
  EXPECT_TRUE(test::contains(test::message_of(ErrorKind::config, [&] { start_of(settle_config(config)); }),
                             "--rank-multiple 4 (it was 8)"));
}

// The number of --bucket-mb auto is of the run, as the own buckets of its method are.
TEST_F(ResumeCommandTest, ARunKeepsTheBucketsThatAutoTook) {
  const std::string flags =
      "--model mlp --width 0.25 --dataset cifar10 --batch-size 2 --steps 1000 --lr 1e-4 --log-every 1 --method acpsgd --ranks 2 "
      "--ranks-per-node 1 --network latency=1us,bandwidth=10Gbps --bucket-mb auto ";
  const std::string train = fmt::format("train --data-dir {} {}", small_cifar(), flags);
  const test::Outcome planned = run("plan " + flags);
  const test::Outcome stopped = run_and_signal(train, "part", "TERM");
  ASSERT_EQ(stopped.exit_code, kStoppedExitCode) << stopped.err;
  const std::string line = stopped.out.substr(stopped.out.find("--bucket-mb auto takes"));
  EXPECT_TRUE(test::contains(planned.out, line.substr(0, line.find('\n')))) << planned.out << stopped.out;
  const std::string file = in_folder(path("part"), kConfigFile);
  std::string saved = read_file(file, ErrorKind::data);
  const auto replace = [&](std::string& text, const std::string& key, const std::string& value) {
    const std::size_t at = text.find(fmt::format("\n{} = ", key)) + 1;
    text.replace(at, text.find('\n', at) - at, fmt::format("{} = {}", key, value));
  };
  const TrainConfig begun = resolve_train_config({}, file);
  EXPECT_TRUE(test::contains(line, fmt::format("--bucket-mb {0} --acpsgd.bucket-mb {0}\n", begun.bucket_mb))) << saved;
  EXPECT_EQ(begun.of<AcpSgdOptions>().bucket_mb, begun.bucket_mb);

  // As another release would have chosen.
  replace(saved, "bucket_mb", "0.75");
  saved.replace(saved.rfind("\nbucket_mb = "), std::string::npos, "\nbucket_mb = 0.5\n");
  write_file_atomically(file, saved);
  const TrainConfig named = resolve_train_config({{"resume", path("part")}, {"bucket_mb", "auto"}}, "");
  EXPECT_EQ(settle_config(named).bucket_mb, 0.75);
  const test::Outcome resumed = run(train + "--resume auto --out " + path("part"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_TRUE(test::contains(resumed.out, "resuming at step")) << resumed.out;
  EXPECT_EQ(read_file(file, ErrorKind::data), saved);
}

TEST_F(ResumeCommandTest, AutoBucketsNeedARunThatCanBePlanned) {
  const std::string flags = "--ranks 2 --ranks-per-node 1 --bucket-mb auto ";
  const test::Outcome open = run(tiny_train("open", flags + "--method ab --ab.first-split 1 --ab.ratio 0"));
  EXPECT_EQ(open.exit_code, 0) << "ranks r are assumed: " << open.err;
  expect_failure(
      tiny_train("two", flags + "--network 'latency=1us; from 2: latency=2us'"), 2,
      "--bucket-mb auto takes its number from a plan of the run: a plan takes one network, and --network has 2");
  EXPECT_FALSE(fs::exists(path("two")));
}

/// Numbers of the checkpoints of a run, oldest first.
std::vector<std::int64_t> steps_in(const std::string& run) {
  std::vector<std::int64_t> steps = checkpoints_in(run + "/checkpoints");
  std::reverse(steps.begin(), steps.end());
  return steps;
}

// All weights are zero but for the last biases, which double in every step, and the loss is that of equal logits
// meanwhile. They are infinite after five steps, however the update rounds: b − 3b is 2e38 in the fourth.
TEST_F(ResumeCommandTest, AStateThatIsNotFiniteIsNotSavedAndAnOlderCheckpointCanBeChosen) {
  ASSERT_EQ(run(tiny_train("start", "--width 0.05")).exit_code, 0);
  TensorFile start = read_safetensors(path("start/model.safetensors"));
  for (NamedTensor& tensor : start.tensors)
    std::ranges::fill(tensor.value.span<float>(), tensor.name == "fc4.bias" ? 1.25e37f : 0.0f);
  write_safetensors(path("huge"), start);
  const test::Outcome broken = run(fmt::format(
      "train --model mlp --width 0.05 --dataset cifar10 --data-dir {} --batch-size 4 --steps 40 --lr 3 "
      "--weight-decay 1 --momentum 0 --schedule constant --save-every 1 --keep-checkpoints 100 --ranks 2 --weights {} "
      "--out {}",
      path("data"), path("huge"), path("run")));
  EXPECT_EQ(broken.exit_code, 5);
  EXPECT_TRUE(test::contains(broken.err, "the state of step 5 is not saved, rank 0: model.fc4.bias holds NaN"));
  const std::vector<std::int64_t> steps = steps_in(path("run"));
  ASSERT_EQ(steps, (std::vector<std::int64_t>{1, 2, 3, 4}));

  const test::Outcome again = run("train --resume " + path("run"));
  EXPECT_EQ(again.exit_code, 5);
  EXPECT_TRUE(test::contains(again.out, fmt::format("resuming at step {} ", steps.back())));
  expect_failure("train --resume " + path("run") + " --resume-step 39", 4,
                 fmt::format("holds no checkpoint of step 39; there are those of {}", fmt::join(steps, ", ")));
  const test::Outcome chosen = run("train --save-every 0 --resume " + path("run") + " --resume-step 1");
  EXPECT_EQ(chosen.exit_code, 5);
  EXPECT_TRUE(test::contains(chosen.out, "resuming at step 1 "));
  EXPECT_EQ(steps_in(path("run")), std::vector<std::int64_t>{1}) << "what followed is set aside";
  EXPECT_TRUE(fs::exists(fmt::format("{}/checkpoints/later_step_{:012}", path("run"), steps.back())));
  expect_failure("train --resume-step 1 --out " + path("new"), 2, "give --resume too");
  expect_failure(tiny_train("new", "--resume auto --resume-step 1"), 4, "has no checkpoint");
}

TEST_F(ResumeCommandTest, AValidationLossThatIsNotFiniteIsExitFive) {
  expect_failure(fmt::format("train --model resnet20 --width 0.25 --dataset cifar10 --data-dir {} --batch-size 4 "
                             "--steps 3 --lr 1000 --log-every 4 --out {}",
                             small_cifar(), path("run")),
                 5, "the validation loss became");
  EXPECT_FALSE(fs::exists(path("run/model.safetensors")));
  EXPECT_FALSE(fs::exists(path("run/summary.json")));
}

}  // namespace
}  // namespace ab
