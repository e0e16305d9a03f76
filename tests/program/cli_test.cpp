// SPDX-License-Identifier: MIT
//
// The program as a user meets it: what it prints, the exit code, what it leaves on disk. Every failure is one
// line on stderr and nothing half-written.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "apps/settings/config.h"
#include "apps/train/summary.h"
#include "engine/core/atomic_file.h"
#include "engine/device/device.h"
#include "engine/io/safetensors.h"
#include "tests/program_test.h"

namespace fs = std::filesystem;
using namespace ab;
using ab::test::contains;

namespace {

class CliTest : public ab::test::ProgramTest {};
using ab::test::Outcome;

TEST_F(CliTest, HelpAndVersion) {
  const Outcome version = run("--version");
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_TRUE(version.out.starts_with("abtrain ")) << version.out;
  const Outcome help = run("--help");
  EXPECT_EQ(help.exit_code, 0);
  for (const char* command : {"train", "plan", "eval", "export", "inspect", "compare", "data", "Exit codes"})
    EXPECT_TRUE(contains(help.out, command));
  const Outcome all = run("train --help-all");
  EXPECT_EQ(all.exit_code, 0);
  for (const FlagHelp& line : train_flag_help()) EXPECT_TRUE(contains(all.out, line.flag));
  for (const char* command :
       {"plan --help", "eval --help", "export --help", "inspect --help", "compare --help", "data --help"})
    EXPECT_EQ(run(command).exit_code, 0);
}

TEST_F(CliTest, HelpShowsWhatPeopleUseAndTheMethodThatIsNamed) {
  for (const char* command : {"train", "plan", "reproduce"}) {
    const std::string few = run(fmt::format("{} --help", command)).out;
    EXPECT_TRUE(contains(few, "--batch-size") && contains(few, "--help-all")) << few;
    EXPECT_FALSE(contains(few, "--random-erasing") || contains(few, "--powersgd.rank") || contains(few, "--execution"))
        << few;
  }
  const std::string late_cut = run("train --method late-cut --help").out;
  for (const char* flag : {"--late-cut.keep", "--powersgd.rank", "--execution", "--batch-size"})
    EXPECT_TRUE(contains(late_cut, flag)) << late_cut;
  EXPECT_FALSE(contains(late_cut, "--acpsgd.rank")) << late_cut;
  const std::string acpsgd = run("train --help --method=acpsgd").out;
  EXPECT_TRUE(contains(acpsgd, "--acpsgd.rank") && contains(acpsgd, "--dense-steps"));
  EXPECT_FALSE(contains(acpsgd, "--execution")) << acpsgd;
  EXPECT_EQ(run("train --method none --help").exit_code, 0);
}

TEST_F(CliTest, ShellsCompleteCommandsFlagsAndWords) {
  const std::string script = path("completion");
  write_file_atomically(script, run("--completion bash").out);
  const auto completed = [&](const std::string& line) {
    return run_command(fmt::format(
        "bash -c 'source {}; COMP_WORDS=({}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _abtrain; echo ${{COMPREPLY[@]}}'",
        script, line));
  };
  const std::pair<const char*, const char*> cases[] = {
      {"abtrain pl", "plan"},
      {"abtrain train --meth", "--method"},
      {"abtrain train --no-ab", ""},
      {"abtrain train --ab.no-cut", "--ab.no-cut-at-warmup"},
      {"abtrain plan --method late", "late-cut"},
      {"abtrain plan --method = late", "late-cut"},
      {"abtrain train --method powersgd --preset \"\"", "default paper torch-hook"},
      {"abtrain train --method = late-cut --preset =", "default nodes"},
      {"abtrain reproduce vgg", "vgg16_cifar10"},
      {"abtrain eval --precision tf", "tf32"},
      {"abtrain export --names t", "torchvision timm"},
      {"abtrain compare --o", "--out"},
      {"abtrain data ver", "verify"},
      {"abtrain inspect \"\"", ""},
      {"abtrain train --lr \"\"", ""},
  };
  for (const auto& [line, words] : cases) {
    const Outcome outcome = completed(line);
    EXPECT_EQ(outcome.out, fmt::format("{}\n", words)) << line;
    EXPECT_EQ(outcome.err, "") << line;
  }
  for (const char* shell : {"zsh", "fish"}) {
    const Outcome other = run(fmt::format("--completion {}", shell));
    for (const FlagHelp& line : train_flag_help())
      EXPECT_TRUE(contains(other.out, line.flag.substr(2))) << shell << " " << line.flag;
  }
  expect_failure("--completion tcsh", 2, "--completion");
}

TEST_F(CliTest, TheManualPageHasEverySettingAndNothingThatRoffMisreads) {
  const Outcome page = run("--man");
  EXPECT_EQ(page.exit_code, 0);
  EXPECT_TRUE(page.out.starts_with(".TH ABTRAIN 1")) << page.out.substr(0, 100);
  for (const FlagHelp& line : train_flag_help()) {
    std::string flag;
    for (const char c : line.flag) flag += c == '-' ? "\\-" : std::string(1, c);
    EXPECT_TRUE(contains(page.out, "\\fB" + flag)) << line.flag;
  }
  std::istringstream lines(page.out);
  for (std::string line; std::getline(lines, line);) {
    const std::string request = line.substr(0, 4);
    const bool known =
        request == ".TH " || request == ".SH " || request == ".SS " || request == ".TP" || request == ".PP";
    EXPECT_EQ(line.starts_with('.') || line.starts_with('\''), known) << line;
  }
  write_file_atomically(path("abtrain.1"), page.out);
  const Outcome drawn = run_command(fmt::format(
      "! command -v groff || groff -k -man -Tutf8 -P-cbou -ww {} | grep -c 'EXIT STATUS'", path("abtrain.1")));
  EXPECT_EQ(drawn.exit_code, 0);
  EXPECT_EQ(drawn.err, "");
}

TEST_F(CliTest, MistypedWordsAreNamedWithTheNearestOnes) {
  expect_failure("", 2, "there is no command; give train, plan, reproduce, eval, export, inspect, compare or data");
  expect_failure("trian", 2, "there is no command 'trian'; did you mean train?");
  expect_failure("frobnicate", 2, "choose train, plan, reproduce, eval, export, inspect, compare, data");
  expect_failure("--frobnicate", 2, "frobnicate");
  expect_failure("train --bacth-size 4", 2, "no flag or argument '--bacth-size'; did you mean --batch-size?");
  expect_failure("train --batch-sizes=4", 2, "did you mean --batch-size?");
  expect_failure("train --ab.cycle 4", 2, "'--ab.cycle'");
  expect_failure("train run.toml", 2, "did you mean --config run.toml?");
  expect_failure("train now", 2, "no flag or argument 'now'");
  expect_failure("train --lr", 2, "--lr");
  expect_failure("eval", 2, "--model-file");
  expect_failure("inspect", 2, "file");
  expect_failure("compare", 2, "runs");
}

TEST_F(CliTest, ARepeatedFlagIsRefusedByEveryCommand) {
  expect_failure("train --lr 1 --lr=2", 2, "abtrain: --lr is given more than once; give it once");
  expect_failure("plan --ranks 2 --ranks 2", 2, "--ranks is given more than once");
  expect_failure("plan --augment --no-augment", 2, "--augment and --no-augment are both given; give one of them");
  expect_failure("train --ab.no-cut-at-warmup --ab.cut-at-warmup", 2, "are both given");
  expect_failure("reproduce all --dry-run --dry-run", 2, "--dry-run is given more than once");
  expect_failure("eval --model-file a --model-file b", 2, "--model-file is given more than once");
  expect_failure("export --model-file a --out b --out c", 2, "--out is given more than once");
  expect_failure("compare a b --out c.html --out d.html", 2, "--out is given more than once");
  EXPECT_EQ(run("inspect --help --help").exit_code, 0);
}

TEST_F(CliTest, AFlagWithoutItsValueIsNamed) {
  for (const char* flag : {"--lr", "--resume-step", "--betas"})
    for (const char* more : {"", " --model mlp"})
      expect_failure(fmt::format("train {}{}", flag, more), 2, fmt::format("{} is given without a value", flag));
}

TEST_F(CliTest, AnEmptyTextIsNotTakenForNothing) {
  const std::string empty = " is given without a value; is a variable empty?";
  expect_failure("train --config ''", 2, "--config" + empty);
  for (const char* command :
       {"plan --out ''", "compare a --out ''", "export --model-file a --out ''", "reproduce all --dry-run --out ''"})
    expect_failure(command, 2, "--out" + empty);
  expect_failure("plan --factors-from ''", 2, "--factors-from" + empty);
  expect_failure("eval --model-file a --dataset ''", 2, "--dataset");
  expect_failure("inspect ''", 2, "file" + empty);
  EXPECT_EQ(run("plan --model mlp --network '' --cache-disk ''").exit_code, 0);
}

TEST_F(CliTest, AScheduleThatTheRunNeverReachesIsRefused) {
  const auto both = [&](const std::string& flags, const std::string& expected) {
    expect_failure(fmt::format("train --model mlp --dataset cifar10 --data-dir {} --batch-size 4 {} --out {}",
                               small_cifar(), flags, path("o")),
                   2, expected);
    expect_failure("plan --model mlp --dataset cifar10 --batch-size 4 --train-samples 40 " + flags, 2, expected);
  };
  both("--warmup-epochs 5 --epochs 2", "--warmup-epochs 5 (50 steps) does not end within --epochs 2 (20 steps)");
  both("--warmup-epochs 1 --epochs 1", "--warmup-epochs 1 (10 steps) does not end within --epochs 1 (10 steps)");
  both("--warmup-epochs 2 --steps 10", "--warmup-epochs 2 (20 steps) does not end within --steps 10,");
  both("--warmup-steps 1 --steps 1", "--warmup-steps 1 does not end within --steps 1,");
  EXPECT_FALSE(fs::exists(path("o")));
  EXPECT_EQ(run(tiny_train("o", "--warmup-steps 3")).exit_code, 0);
}

TEST_F(CliTest, AGpuThatIsNotThereIsRefusedBeforeAnythingIsWritten) {
  for (const char* word : {"gpu", "cuda:", "cuda:-1", "cuda:1x", "CUDA"})
    expect_failure(tiny_train("o", fmt::format("--device {}", word)), 2, "allowed is cpu, cuda, or cuda:N");
  expect_failure(tiny_train("o", "--cuda-graph on"), 2,
                 "--cuda-graph on: only a GPU can run CUDA graphs; give --device cuda");
  expect_failure("eval --model-file x --device gpu", 2, "allowed is cpu, cuda, or cuda:N");
  if (cuda_device_count() > 0) GTEST_SKIP() << "there is a GPU; device_test trains on it";
  // No data either: the device is asked for first.
  expect_failure(fmt::format("train --dataset cifar10 --data-dir {} --device cuda --out {}", path("none"), path("o")),
                 6, cuda_unavailable_reason());
  expect_failure("eval --model-file none --device cuda:1", 6, cuda_unavailable_reason());
  EXPECT_FALSE(fs::exists(path("o")));
}

TEST_F(CliTest, BadValuesAreRefusedBeforeAnythingStarts) {
  expect_failure("train --lr nan --out " + path("o"), 2, "--lr cannot be nan; allowed is a number, 0 to 1000");
  expect_failure("train --lr=-1 --out " + path("o"), 2, "--lr cannot be -1");
  expect_failure("train --lr 1e999 --out " + path("o"), 2, "--lr cannot be '1e999'");
  expect_failure("train --epochs 99999999999 --out " + path("o"), 2, "--epochs cannot be 99999999999");
  expect_failure("train --epochs 1 --steps 1 --out " + path("o"), 2, "exclude each other");
  expect_failure("train --method abc --out " + path("o"), 2, "allowed is dense");
  expect_failure("train --config " + path("none.toml"), 2, "No such file");
  expect_failure("train --autotune --deterministic", 2, "give one of them");
  write_file_atomically(path("c.toml"), "lr = 0.1\n\nbatchsize = 3\n");
  expect_failure("train --config " + path("c.toml"), 2,
                 "c.toml:3: batchsize is not a setting; did you mean batch_size?");
  expect_failure("train --dataset cifar10 --out " + path("o"), 2, "needs --data-dir");
  EXPECT_FALSE(fs::exists(path("o")));
}

TEST_F(CliTest, ARunThatIsTooShortLeavesWhatItWouldReplace) {
  ASSERT_EQ(run(tiny_train("kept")).exit_code, 0);
  const std::string model = read_file(path("kept/model.safetensors"), ErrorKind::data);
  for (const char* out : {"kept", "new"}) {
    const std::string train =
        fmt::format("train --model mlp --dataset cifar10 --data-dir {} --overwrite --out {} ", path("data"), path(out));
    expect_failure(train + "--batch-size 2 --method late-cut --steps 1", 2,
                   "there has to be a step before the first cut");
    expect_failure(train + "--batch-size 512 --steps 1", 2, "fewer than one batch of 512");
  }
  EXPECT_EQ(read_file(path("kept/model.safetensors"), ErrorKind::data), model);
  EXPECT_TRUE(fs::exists(path("kept/summary.json")));
  EXPECT_FALSE(fs::exists(path("new")));
}

TEST_F(CliTest, BrokenDataIsExitThree) {
  const std::string train =
      "train --model mlp --dataset cifar10 --steps 1 --batch-size 2 --out " + path("o") + " --data-dir ";
  expect_failure(train + path("missing"), 3, path("missing"));
  const std::string data = small_cifar();
  const std::string file = data + "/data_batch_3.bin";
  fs::resize_file(file, 3073 * 8 - 100);
  expect_failure(train + data, 3, "data_batch_3.bin");
  fs::resize_file(file, 3073 * 8);
  std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(3073 * 2).put(static_cast<char>(200));
  expect_failure(train + data, 3, "200");
  EXPECT_FALSE(fs::exists(path("o")));
}

TEST_F(CliTest, GroupsThatDoNotFitAreExitTwo) {
  expect_failure(tiny_train("o", "--method ab --ranks 2 --ab.group-size 3"), 2, "group");
  EXPECT_FALSE(fs::exists(path("o/summary.json")));
}

TEST_F(CliTest, ARunCanBeWatchedEvaluatedInspectedComparedAndRepeated) {
  const Outcome dense = run(tiny_train("dense", "--ranks 2"));
  ASSERT_EQ(dense.exit_code, 0) << dense.err;
  EXPECT_EQ(dense.out.find('\r'), std::string::npos) << "carriage returns without a terminal";
  EXPECT_EQ(dense.err.find('\r'), std::string::npos) << "carriage returns without a terminal";
  for (const char* file : {"config.toml", "metrics.jsonl", "summary.json", "model.safetensors"})
    EXPECT_TRUE(fs::exists(path("dense/") + file)) << file;

  expect_failure(tiny_train("dense", "--ranks 2"), 2, "already holds a run");
  expect_failure("train --resume-step 2 --resume " + path("dense"), 2, "is complete and does not go on from step 2");

  // The saved configuration gives the same run again, byte for byte in the model.
  const Outcome again = run(fmt::format("train --config {} --out {}", path("dense/config.toml"), path("again")));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(read_file(path("dense/model.safetensors"), ErrorKind::data),
            read_file(path("again/model.safetensors"), ErrorKind::data));
  EXPECT_EQ(run(tiny_train("dense", "--ranks 2 --overwrite")).exit_code, 0);

  const Outcome low_rank = run(tiny_train("ab",
                                          "--ranks 2 --method ab --ab.first-split 1 --ab.cycle-steps 10 "
                                          "--ab.full-rank-steps 1 --ab.ratio 0.25"));
  ASSERT_EQ(low_rank.exit_code, 0) << low_rank.err;

  for (const char* name : {"dense", "ab"}) {
    const Summary summary = summary_from_json(read_file(path(name) + "/summary.json", ErrorKind::data), name);
    EXPECT_EQ(summary.steps, 4);
    EXPECT_EQ(summary.world_size, 2);
    EXPECT_EQ(summary.val_samples, 16);
    const Outcome eval = run(fmt::format("eval --model-file {} --data-dir {}", path(name), path("data")));
    EXPECT_EQ(eval.exit_code, 0) << eval.err;
    EXPECT_TRUE(contains(
        eval.out, fmt::format("loss {:.4f}   top-1 {:.2f} %", summary.final_val_loss, 100 * summary.final_val_top1)));
    EXPECT_TRUE(contains(eval.out, "16 test images"));
  }

  const Outcome inspect = run("inspect " + path("ab/model.safetensors"));
  EXPECT_EQ(inspect.exit_code, 0) << inspect.err;
  EXPECT_TRUE(contains(inspect.out, "/512"));  // r of a factored 512-wide layer
  EXPECT_EQ(inspect.out.find('\x1b'), std::string::npos) << "colours without a terminal";

  fs::create_directories(path("alone"));
  fs::copy_file(path("ab/model.safetensors"), path("alone/model.safetensors"));
  const auto table = [](const std::string& text) { return text.substr(text.find('\n')); };
  EXPECT_EQ(table(run("inspect " + path("alone")).out), table(inspect.out)) << "a folder without a summary";

  const Outcome compare = run(fmt::format("compare {} {} --out {}", path("dense"), path("ab"), path("report.html")));
  EXPECT_EQ(compare.exit_code, 0) << compare.err;
  EXPECT_TRUE(contains(compare.out, "dense"));
  EXPECT_TRUE(contains(compare.out, "saved"));
  EXPECT_TRUE(contains(compare.out, "sent in"));
  EXPECT_TRUE(contains(compare.out, "fp32"));
  EXPECT_TRUE(contains(read_file(path("report.html"), ErrorKind::data), "</html>"));
}

TEST_F(CliTest, OutReplacesNothingButAnEarlierFileOfItsKind) {
  for (const char* name : {"a", "b"}) ASSERT_EQ(run(tiny_train(name, "--save-every 2")).exit_code, 0);
  const auto content = [&](const std::string& file) { return read_file(path(file), ErrorKind::data); };
  write_file_atomically(path("notes"), "my own");
  write_safetensors(path("foreign.safetensors"), {{}, {{"w", Tensor::zeros({2, 2})}}});
  for (const char* ending : {".html", ".json", ".md", ".safetensors"})
    fs::copy_file(path("notes"), path("notes") + ending);
  fs::copy_file(path("a/summary.json"), path("copy.json"));
  fs::create_hard_link(path("a/model.safetensors"), path("hard"));
  fs::create_symlink(path("a/summary.json"), path("soft.json"));
  fs::create_symlink(path("a"), path("folder"));
  fs::create_symlink(path("gone.html"), path("dangling.html"));
  const std::string compare = fmt::format("compare {} {} --out ", path("a"), path("b"));
  const std::string plan = "plan --model mlp --dataset cifar10 --out ";
  const std::string with_ranks =
      fmt::format("plan --model mlp --dataset cifar10 --factors-from {} --out ", path("copy.json"));
  const std::string exported = fmt::format("export --model-file {} --out ", path("a"));
  const std::string in_run = "is a file of a run", foreign = "is there already, and is not ",
                    read_here = "which is read here";
  const std::string name = "is not a name for ";
  const std::vector<std::pair<std::string, std::string>> refused{
      {compare + path("a/summary.json"), in_run},
      {compare + path("b/metrics.jsonl"), in_run},
      {compare + path("a/../b/./config.toml"), in_run},
      {compare + path("folder/model.safetensors"), in_run},
      {compare + path("a/checkpoints/page.html"), in_run},
      {compare + path("notes.html"), foreign + "a page"},
      {compare + path("a"), "is a folder"},
      {compare + path("dangling.html"), "is a link to a file that is not there"},
      {compare + path("none/page.html"), "there is no folder"},
      {compare + path("new"), name + "a page"},
      {plan + path("new"), name + "a plan"},
      {plan + path("notes.json"), foreign + "a plan"},
      {plan + path("copy.json"), foreign + "a plan"},
      {plan + path("soft.json"), in_run},
      {plan + path("a/summary.json"), in_run},
      {with_ranks + path("a/../copy.json"), read_here},
      {exported + path("folder/model.safetensors"), read_here},
      {exported + path("b/model.safetensors"), in_run},
      {exported + path("b/model_average.safetensors"), in_run},
      {exported + path("b/checkpoints/step_000000000004/rank_00000.safetensors"), in_run},
      {exported + path("hard"), read_here},
      {exported + path("new"), name + "a model file"},
      {exported + path("notes.safetensors"), foreign + "a model file"},
      {exported + path("foreign.safetensors"), foreign + "a model file"},
      {"reproduce vgg16_cifar10 --dry-run --ratio 0.25 --out " + path("table"), foreign + "a table"}};
  fs::create_directories(path("table"));
  fs::copy_file(path("notes"), path("table/reproduce.md"));
  std::map<std::string, std::string> before;
  for (const auto& entry : fs::recursive_directory_iterator(folder_))
    if (entry.is_regular_file() && !entry.path().filename().string().starts_with("std"))
      before[entry.path().string()] = read_file(entry.path().string(), ErrorKind::data);
  for (const auto& [command, reason] : refused) expect_failure(command, 2, reason);
  for (const auto& [file, text] : before) EXPECT_EQ(read_file(file, ErrorKind::data), text) << file;
  EXPECT_FALSE(fs::exists(path("new")) || fs::exists(path("gone.html"))) << "a refused command leaves nothing";

  // Its own earlier file, an empty one and a link to one are replaced; the link stays.
  fs::create_symlink("page.html", path("link.html"));
  write_file_atomically(path("made.json"), "");
  fs::remove(path("table/reproduce.md"));
  for (const char* round : {"first", "second"}) {
    for (const std::string& command :
         {compare + path("page.html"), compare + path("link.html"), compare + path("a/page.html"),
          plan + path("made.json"), exported + path("model.safetensors"), "export --model-file " + path("a"),
          refused.back().first})
      EXPECT_EQ(run(command).exit_code, 0) << round << ": " << command << "\n" << content("stderr");
  }
  EXPECT_TRUE(fs::is_symlink(path("link.html")));
  EXPECT_TRUE(contains(content("page.html"), "<meta name=\"generator\" content=\"abtrain\">"));
}

// Running statistics and factors count as they are stored; the same figure everywhere.
TEST_F(CliTest, EveryCommandCountsAModelAlike) {
  const std::string ab = tiny_train("ab",
                                    "--width 0.25 --ranks 2 --method ab --ab.first-split 1 "
                                    "--ab.cycle-steps 10 --ab.full-rank-steps 1 --ab.ratio 0.25");
  const Outcome train = run(std::string(ab).replace(ab.find("mlp"), 3, "resnet20"));
  ASSERT_EQ(train.exit_code, 0) << train.err;
  double stored = 0, full = 0;
  const TensorFile file = read_safetensors(path("ab/model.safetensors"));
  for (const NamedTensor& tensor : file.tensors) stored += static_cast<double>(tensor.value.numel());
  ASSERT_EQ(run(fmt::format("export --model-file {} --out {}", path("ab"), path("merged.safetensors"))).exit_code, 0);
  for (const NamedTensor& tensor : read_safetensors(path("merged.safetensors")).tensors)
    if (!tensor.name.ends_with(".num_batches_tracked")) full += static_cast<double>(tensor.value.numel());
  const std::string ratio = fmt::format("{:.2f} : 1", full / stored);
  const std::string plan = fmt::format("plan --config {} ", path("ab/config.toml"));
  EXPECT_TRUE(contains(train.out, "(" + ratio + " as stored)"));
  EXPECT_TRUE(contains(run("inspect " + path("ab")).out, "compressed " + ratio));
  EXPECT_TRUE(contains(run("compare " + path("ab")).out, " " + ratio + " "));
  EXPECT_TRUE(contains(run(plan + "--train-samples 40 --ranks 2").out, "(" + ratio + " as stored)"));
  const Summary summary = summary_from_json(read_file(path("ab/summary.json"), ErrorKind::data), "ab");
  EXPECT_DOUBLE_EQ(summary.compression_ratio, full / stored);
}

TEST_F(CliTest, APlanSaysNoMoreThanIsKnown) {
  const std::string plan = "plan --model resnet20 --dataset cifar10 --ranks 8 --ranks-per-node 2 --epochs 4 ";
  const Outcome open = run(plan + "--method late-cut --out " + path("open.json"));
  EXPECT_TRUE(contains(open.out, "272 k parameters, training decides how many remain\n")) << open.err;
  EXPECT_TRUE(contains(open.out, "  ≥ "));
  EXPECT_FALSE(contains(open.out, ": 1")) << open.out;
  EXPECT_TRUE(contains(read_file(path("open.json"), ErrorKind::data), "\"compression_ratio\": null"));
  EXPECT_TRUE(contains(run(plan).out, "272 k parameters, as many at the end\n"));
  EXPECT_TRUE(contains(run(plan + "--method late-cut --ratio 0.25").out, " : 1 as stored)\n"));

  const Outcome daso = run(plan + "--method daso");
  EXPECT_TRUE(contains(daso.out, "× as much")) << "more than dense training sends";
  const Outcome cuda = run(plan + "--device cuda --allreduce two-level");
  EXPECT_TRUE(contains(cuda.out, "all collectives by NCCL, taken for rings")) << cuda.out << cuda.err;
  EXPECT_FALSE(contains(cuda.out, "library"));
  EXPECT_TRUE(contains(run(plan + "--allreduce two-level").out, "all-reduces by --allreduce two-level"));

  // Two digits of a modelled time, and one decimal of a share: the next ones are not of the network, but of the model.
  const std::string text =
      run(plan + "--method late-cut --ratio 0.25 --network latency=1us,bandwidth=0.1Gbps --step-ms 40").out;
  std::istringstream words(text.substr(0, text.find("memory per rank")));
  int times = 0, shares = 0;
  for (std::string number, word; words >> word; number = word) {
    const auto dot = std::min(number.find('.'), number.size()), last = number.find_last_not_of("0");
    const bool is_time = word == "ms" || word == "µs" || word == "min", is_share = word == "%";
    times += is_time, shares += is_share;
    const auto digits = last == number.npos ? 1 : last + 1 - (dot < last ? 1 : 0);
    EXPECT_TRUE(!is_share || number.size() - dot <= 2) << number;
    EXPECT_TRUE(!is_time || digits <= 2) << number << " " << word;
  }
  EXPECT_GT(times, 5);
  EXPECT_EQ(shares, 4);
}

TEST_F(CliTest, WhatHasNoEffectIsSaid) {
  const std::string slow = "--ranks 2 --network latency=1us,bandwidth=100Gbps";
  const Outcome one_node = run(tiny_train("one", slow)),
                two_nodes = run(tiny_train("two", slow + " --ranks-per-node 1"));
  EXPECT_EQ(one_node.exit_code, 0) << one_node.err;
  EXPECT_TRUE(contains(one_node.err, "--network is between nodes, and here is one")) << one_node.err;
  EXPECT_EQ(two_nodes.exit_code, 0) << two_nodes.err;
  EXPECT_FALSE(contains(two_nodes.err, "--network")) << two_nodes.err;
  const std::string lone = "warning: --method hitopk takes every rank for a node here";
  const std::string four = "--ranks 4 --method hitopk --dense-steps 0";
  for (const std::string& command : {tiny_train("lone", four), "plan --model mlp --dataset cifar10 " + four}) {
    EXPECT_TRUE(contains(run(command).err, lone)) << command;
    const std::string again = command.starts_with("train") ? " --overwrite" : "";
    EXPECT_FALSE(contains(run(command + again + " --ranks-per-node 2").err, lone)) << command;
  }
  const Outcome inside = run(tiny_train("inside", slow + ",node-latency=1us"));
  EXPECT_EQ(inside.exit_code, 0) << inside.err;
  EXPECT_FALSE(contains(inside.err, "--network")) << inside.err;

  const Outcome warmup = run(tiny_train("warmup", "--method ab --ab.first-split 100"));
  EXPECT_EQ(warmup.exit_code, 0) << warmup.err;
  EXPECT_TRUE(contains(warmup.err, "no weight was split")) << warmup.err;
  const Outcome plan = run(fmt::format("plan --config {}", path("warmup/config.toml")));
  EXPECT_TRUE(contains(plan.out, "No weight is split in this run")) << plan.out << plan.err;

  const Outcome whole = run(tiny_train("whole", "--ranks 2 --method powersgd --dense-steps 4 --accumulate 9"));
  EXPECT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_TRUE(contains(whole.err, "the warm-up of --method powersgd did not end in this run")) << whole.err;
  EXPECT_TRUE(contains(whole.err, "an update adds up the 5 batches of an epoch, fewer than --accumulate 9"));
  EXPECT_TRUE(contains(run(fmt::format("plan --config {}", path("whole/config.toml"))).out,
                       "The warm-up of the method does not end in this run"));
  const Outcome compressed =
      run(tiny_train("whole", "--ranks 2 --method powersgd --dense-steps 3 --accumulate 5 --overwrite"));
  EXPECT_EQ(compressed.err.find("warning"), std::string::npos) << compressed.err;
}

TEST_F(CliTest, BrokenModelFilesAreExitFour) {
  expect_failure("eval --model-file " + path("none") + " --dataset synthetic", 4, "No such file");
  expect_failure("inspect " + path("none"), 4, "No such file");
  write_file_atomically(path("short"), "1234567");
  expect_failure("inspect " + path("short"), 4, "not a safetensors file");
  write_safetensors(path("foreign"), {{}, {{"w", Tensor::zeros({2, 2})}}});
  EXPECT_EQ(run("inspect " + path("foreign")).exit_code, 0);
  expect_failure("eval --model-file " + path("foreign"), 4, "give --model and --dataset");
  expect_failure("eval --model mlp --dataset cifar10 --data-dir " + small_cifar() + " --model-file " + path("foreign"),
                 4, "w is not part of it");
  expect_failure("export --model-file " + path("foreign"), 4, "lacks \"format\"");
  TensorFile content{{{"format", "abtrain"}, {"format_version", "99"}}, {}};
  write_safetensors(path("newer"), content);
  expect_failure("eval --model-file " + path("newer"), 4, "format version 99, this program reads versions 2 and 3");
  content.metadata = {{"format", "abtrain"}, {"format_version", "2"},  {"names", "torchvision"},
                      {"model", "mlp"},      {"dataset", "synthetic"}, {"classes", "10"},
                      {"image_size", "32"},  {"width", "1"},           {"qkv_bias", "true"}};
  content.tensors = {{"extra.weight", Tensor::zeros({2})}};
  write_safetensors(path("other"), content);
  expect_failure("eval --model-file " + path("other"), 4, "extra.weight is not part of it");
  expect_failure("eval --model-file " + path("other"), 4, " is missing");
  content.metadata["model"] = "resnet20000";
  write_safetensors(path("unknown"), content);
  expect_failure("eval --model-file " + path("unknown"), 4, "'resnet20000'");
}

/// A command with other words in one place.
std::string replaced(std::string command, const std::string& words, const std::string& by) {
  return command.replace(command.find(words), words.size(), by);
}

/// "loss 2.3012   top-1 12.50 %   top-5 50.00 %"
std::string evaluation_in(const std::string& output) {
  return output.substr(std::min(output.find("loss"), output.size()));
}

// A terminal obeys escape sequences, of which names in a file from elsewhere may consist.
TEST_F(CliTest, InspectPrintsNoControlCharactersOfAFile) {
  write_safetensors(path("hostile"), {{{"note", "a\x1b[2Jb\nc\xc2\x9b"}}, {{"w\x1b]0;x\x07", Tensor::zeros({2, 2})}}});
  const Outcome outcome = run("inspect " + path("hostile"));
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_TRUE(contains(outcome.out, "note a [2Jb c "));
  for (const char* control : {"\x1b", "\x07", "\xc2\x9b"}) EXPECT_EQ(outcome.out.find(control), std::string::npos);
}

TEST_F(CliTest, ModelsAreExportedAndTrainedFurther) {
  const std::string ab =
      "--ranks 2 --method ab --ab.first-split 1 --ab.cycle-steps 10 --ab.full-rank-steps 1 --ab.ratio 0.25 "
      "--width 0.25";
  ASSERT_EQ(run(tiny_train("ab", ab)).exit_code, 0);
  const std::string data = " --data-dir " + path("data");
  const std::string trained = evaluation_in(run("eval --model-file " + path("ab") + data).out);
  ASSERT_FALSE(trained.empty());

  // What is exported is the same model, as factors to the digit and multiplied to rounding.
  const Outcome factors = run("export --model-file " + path("ab") + " --names timm --factors ab");
  EXPECT_EQ(factors.exit_code, 0) << factors.err;
  EXPECT_EQ(evaluation_in(run("eval --model-file " + path("ab/model_timm.safetensors") + data).out), trained);
  const Outcome merged = run("export --model-file " + path("ab") + " --out " + path("merged.safetensors"));
  EXPECT_TRUE(contains(merged.out, "mlp, 8 tensors under torchvision's names")) << merged.err;
  EXPECT_TRUE(contains(merged.out, "the factors of 2 weights were multiplied"));
  EXPECT_EQ(evaluation_in(run("eval --model-file " + path("merged.safetensors") + data).out), trained);
  for (const char* file : {"ab/model_timm.safetensors", "merged.safetensors"})
    EXPECT_TRUE(
        contains(run("inspect " + path(file)).out, file == std::string("merged.safetensors") ? "full" : "/128"));
  expect_failure("export --model-file " + path("ab") + " --out " + path("ab/model.safetensors"), 2,
                 "which is read here; choose another name");

  // Training starts from any of them: at a rate of zero it ends where it started.
  for (const char* start : {"ab", "ab/model_timm.safetensors", "merged.safetensors"}) {
    const std::string train = tiny_train("further", "--width 0.25 --ranks 2 --overwrite --weights " + path(start));
    const Outcome further = run(replaced(train, "--lr 0.01", "--lr 0"));
    EXPECT_EQ(further.exit_code, 0) << further.err;
    EXPECT_EQ(evaluation_in(run("eval --model-file " + path("further") + data).out), trained) << start;
  }
  // --out may replace the run that --weights names.
  EXPECT_EQ(run(tiny_train("further", "--width 0.25 --overwrite --weights " + path("further"))).exit_code, 0);

  // A file that does not fit leaves nothing behind.
  expect_failure(tiny_train("narrow", "--width 0.5 --weights " + path("ab")), 4,
                 "does not fit the model: fc1.weight is");
  expect_failure(tiny_train("none", "--weights " + path("missing")), 4, "No such file");
  EXPECT_FALSE(fs::exists(path("narrow")));
  EXPECT_FALSE(fs::exists(path("none")));
}

TEST_F(CliTest, PythonReadsAModelWithItsFactorsMultiplied) {
  if (std::system("python3 -c 'import numpy' 2>/dev/null") != 0) GTEST_SKIP() << "this system has no Python with NumPy";
  const std::string train = tiny_train("cut", "--ranks 2 --method late-cut --width 0.5");
  for (const char* factors : {"channel", "spatial"}) {
    const std::string of_resnet =
        replaced(train, "--model mlp", "--model resnet20 --late-cut.conv-factors " + std::string(factors));
    ASSERT_EQ(run(of_resnet + " --overwrite").exit_code, 0);
    ASSERT_EQ(run("export --model-file " + path("cut") + " --out " + path("merged.safetensors")).exit_code, 0);
    const std::string script = fmt::format(
        "import sys; sys.path.insert(0, '{}/apps'); import numpy as np; from read_model import read_model; "
        "a, b = read_model('{}/model.safetensors'), read_model('{}'); "
        "assert a.keys() == b.keys() and len(a) > 90; "
        "assert all(a[n].shape == b[n].shape and np.allclose(a[n], b[n], 1e-5, 1e-6) for n in a)",
        AB_SOURCE_DIR, path("cut"), path("merged.safetensors"));
    EXPECT_EQ(std::system(fmt::format("python3 -B -c \"{}\"", script).c_str()), 0) << factors;
  }
}

TEST_F(CliTest, ModelsOfOtherProgramsAreEvaluated) {
  ASSERT_EQ(run(tiny_train("run")).exit_code, 0);
  TensorFile content = read_safetensors(path("run/model.safetensors"));
  content.metadata = {{"format", "pt"}};
  write_safetensors(path("foreign"), content);
  const std::string own = run("eval --data-dir " + path("data") + " --model-file " + path("run")).out;
  const std::string eval = "eval --dataset cifar10 --data-dir " + path("data") + " --model-file ";
  const Outcome foreign = run(eval + path("foreign") + " --model mlp");
  EXPECT_EQ(evaluation_in(foreign.out), evaluation_in(own)) << foreign.err;
  expect_failure(eval + path("foreign") + " --model mlp --image-size 16", 4,
                 "fc1.weight is float32 [512, 3072], expected");
  expect_failure(eval + path("foreign") + " --model mlp --classes 3", 4, "fc4.weight is float32 [10, 512], expected");
  expect_failure(eval + path("foreign") + " --model lenet", 2, "there is no model 'lenet'");
  expect_failure(eval + path("run") + " --model mlp", 2, "leave out --model");
  expect_failure("eval --data-dir x --model mlp --model-file " + path("foreign"), 2, "give --dataset");

  // A classifier of other classes starts fresh, and says so once.
  for (NamedTensor& t : content.tensors)
    if (t.name.starts_with("fc4.")) t.value = t.value.slice(0, 7).clone();
  write_safetensors(path("seven"), content);
  const Outcome fresh = run(tiny_train("fresh", "--ranks 2 --weights " + path("seven")));
  EXPECT_EQ(fresh.exit_code, 0) << fresh.err;
  EXPECT_TRUE(
      contains(fresh.err, "a different number of classes than cifar10; fc4.weight and fc4.bias start from drawn"));
  EXPECT_EQ(fresh.err.find("warning"), fresh.err.rfind("warning")) << fresh.err;
}

TEST_F(CliTest, WeightsAreTakenAsTrainingProgramsStoreThem) {
  ASSERT_EQ(run(tiny_train("run")).exit_code, 0);
  const std::string own = run("eval --data-dir " + path("data") + " --model-file " + path("run")).out;
  TensorFile content = read_safetensors(path("run/model.safetensors"));
  content.metadata.clear();
  for (NamedTensor& t : content.tensors) t.name = "module._orig_mod." + t.name;
  content.tensors.push_back({"n_averaged", Tensor::zeros({2, 3}, DType::int64)});
  write_safetensors(path("swa"), content);
  EXPECT_FALSE(contains(run("inspect " + path("swa")).out, "n_averaged")) << "no layer";
  const std::string eval = "eval --model mlp --dataset cifar10 --data-dir " + path("data") + " --model-file ";
  const Outcome swa = run(eval + path("swa"));
  EXPECT_EQ(evaluation_in(swa.out), evaluation_in(own));
  EXPECT_EQ(swa.err, fmt::format("{0}: its tensors are read without 'module.' and '_orig_mod.' in their names\n"
                                 "{0}: the model does not need n_averaged (int64 [2, 3]), which is ignored\n",
                                 path("swa")));

  std::erase_if(content.tensors, [](const NamedTensor& t) { return contains(t.name, ".fc4."); });
  write_safetensors(path("features"), content);
  expect_failure(eval + path("features"), 4, "fc4.weight is missing; fc4.bias is missing");
  const Outcome fresh = run(tiny_train("fresh", "--weights " + path("features")));
  EXPECT_EQ(fresh.exit_code, 0) << fresh.err;
  EXPECT_TRUE(contains(fresh.err, "features has no classifier; fc4.weight and fc4.bias start from drawn values\n"));

  write_file_atomically(path("resnet.pth"), "PK\x03\x04 archive/data.pkl");
  for (const std::string& command :
       {eval + path("resnet.pth"), "inspect " + path("resnet.pth"), "export --model-file " + path("resnet.pth"),
        tiny_train("none", "--weights " + path("resnet.pth"))}) {
    const Outcome outcome = run(command);
    EXPECT_EQ(outcome.exit_code, 4) << command;
    EXPECT_TRUE(contains(outcome.err, "resnet.pth is not a safetensors file but a checkpoint of PyTorch"));
    EXPECT_TRUE(contains(outcome.err, "convert it: python3 -c \"import torch")) << command;
  }
}

#if defined(__x86_64__)
// An OpenBLAS that is older than the processor, as if by OPENBLAS_CORETYPE.
TEST_F(CliTest, KernelsOfOpenBlasThatAreOlderThanTheProcessorAreTold) {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
    GTEST_SKIP() << "this processor is older itself";
  const auto warnings_of = [&](const std::string& kernels, const std::string& method) {
    const std::string arguments = tiny_train(kernels + method, "--method " + method);
    return run_command(
               fmt::format("env OMP_NUM_THREADS=1 OPENBLAS_CORETYPE={} {} {}", kernels, ab::test::program(), arguments))
        .err;
  };
  EXPECT_TRUE(contains(warnings_of("Prescott", "ab"), "kernels for Prescott; with OPENBLAS_CORETYPE="));
  EXPECT_FALSE(contains(warnings_of("Haswell", "ab"), "OpenBLAS"));
  EXPECT_FALSE(contains(warnings_of("Prescott", "dense"), "OpenBLAS"));
}
#endif

TEST_F(CliTest, CompareSaysWhichFolderIsNoRun) {
  expect_failure("compare " + path("none"), 3, "there is no run folder " + path("none"));
  fs::create_directories(path("empty"));
  expect_failure("compare " + path("empty"), 3, "holds no finished run");
  expect_failure("eval --model-file " + path("empty"), 4, "empty holds no finished run: it has no model.safetensors");
  fs::create_directories(path("runs/a"));
  write_file_atomically(path("runs/a/metrics.jsonl"), "");
  write_file_atomically(path("runs/report.html"), "");
  expect_failure("compare " + path("runs"), 3, "is no run, but holds folders of runs; give those: ");
  const std::string goes_on = "go on with abtrain train --resume " + path("runs/a");
  expect_failure("compare " + path("runs/a"), 3, goes_on);
  expect_failure("inspect " + path("runs/a"), 4, goes_on);
  write_file_atomically(path("empty/summary.json"), "{\"method\": 3}");
  expect_failure("compare " + path("empty"), 3, "\"method\" has the wrong type");
  expect_failure("inspect " + path("empty"), 4, "has ended, but its model.safetensors is gone");
  write_file_atomically(path("empty/summary.json"), "{\"method\": ");
  expect_failure("compare " + path("empty"), 3, "not a JSON object");
}

TEST_F(CliTest, AClosedPipeDoesNotKill) {
  const std::string command =
      fmt::format("bash -c 'set -o pipefail; {} train --help | head -c 10'", ab::test::program());
  const int status = std::system((command + " >/dev/null").c_str());
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST_F(CliTest, PathsBeginAtHome) {
  const std::string home = "env HOME=" + folder_;
  ASSERT_EQ(run(tiny_train("run")).exit_code, 0);
  for (const char* command :
       {"inspect '~/run'", "compare '~/run' --out=~/page.html", "eval --model-file=~/run --data-dir=~/data",
        "export --model-file=~/run --out=~/model.safetensors", "train --config=~/run/config.toml --out=~/again"})
    EXPECT_EQ(run(command, home).exit_code, 0) << command << read_file(path("stderr"), ErrorKind::data);
  for (const char* made : {"page.html", "model.safetensors", "again/summary.json"}) EXPECT_TRUE(fs::exists(path(made)));
}

TEST_F(CliTest, AFolderThatCannotBeMadeIsExitTwo) {
  expect_failure(fmt::format("train --dataset cifar10 --data-dir {} --steps 1 --batch-size 2 --out /proc/abtrain/run",
                             small_cifar()),
                 2, "--out /proc/abtrain/run cannot be");
}

// A run of days must not end because nobody can hear it.
TEST_F(CliTest, TrainingGoesOnWhereNothingCanBePrinted) {
  const std::string shell = "bash -c 'set -o pipefail; ";
  int runs = 0;
  for (const char* where : {"2>/dev/full", ">/dev/full 2>&1", "2>&1 | true"}) {
    const std::string out = fmt::format("run_{}", runs++);
    const Outcome outcome = run_command(fmt::format("{}env OMP_NUM_THREADS=1 {} {} {}'", shell, ab::test::program(),
                                                    tiny_train(out, "--save-every 2"), where));
    EXPECT_EQ(outcome.exit_code, 0) << where << "\n" << outcome.err;
    EXPECT_TRUE(fs::exists(path(out) + "/model.safetensors")) << where;
  }
}

TEST_F(CliTest, AResultThatCannotBeWrittenIsAFailure) {
  ASSERT_EQ(run(tiny_train("run", "")).exit_code, 0);
  const std::string commands[] = {fmt::format("eval --data-dir {} --model-file {}", path("data"), path("run")),
                                  fmt::format("inspect {}", path("run")), fmt::format("compare {}", path("run")),
                                  fmt::format("plan --config {}/config.toml", path("run"))};
  for (const std::string& words : commands) {
    const Outcome full = run_command(fmt::format("OMP_NUM_THREADS=1 {} {} >/dev/full", ab::test::program(), words));
    EXPECT_EQ(full.exit_code, 3) << words;
    EXPECT_TRUE(contains(full.err, "the output cannot be written: No space left on device")) << full.err;
    EXPECT_EQ(
        run_command(fmt::format("OMP_NUM_THREADS=1 bash -o pipefail -c '{} {} | true'", ab::test::program(), words))
            .exit_code,
        0);
  }
}

TEST_F(CliTest, AFolderThatIsSomebodyElsesIsLeftAlone) {
  for (const char* file : {"checkpoints/epoch90.pt", "config.toml", "save"}) {
    const fs::path theirs = path("theirs");
    fs::remove_all(theirs);
    fs::create_directories((theirs / file).parent_path());
    std::ofstream(theirs / file) << "not of a run";
    expect_failure(tiny_train("theirs", "--overwrite"), 2, "choose another folder");
    EXPECT_EQ(read_file((theirs / file).string(), ErrorKind::data), "not of a run");
  }
}

// A file that takes the number of a closed stream is not one to print into.
TEST_F(CliTest, ClosedStreamsPutNothingIntoTheFilesOfTheRun) {
  for (const char* closed : {"2>&-", ">&- 2>&-", "<&- >&- 2>&-"}) {
    const Outcome outcome = run_command(fmt::format("OMP_NUM_THREADS=1 {} {} {}", ab::test::program(),
                                                    tiny_train("run", "--overwrite --eval-every 1"), closed));
    EXPECT_EQ(outcome.exit_code, 0);
    std::istringstream lines(read_file(path("run/metrics.jsonl"), ErrorKind::data));
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count)
      EXPECT_TRUE(line.starts_with("{") && line.ends_with("}")) << closed << ": " << line;
    EXPECT_GT(count, 4);
  }
}

// A file system that takes the model and no checkpoint, and no words either.
TEST_F(CliTest, AFailedCheckpointWithItsLogOnAFullDiskCostsTheCheckpointAlone) {
  ASSERT_EQ(run(tiny_train("sizes", "--save-every 4")).exit_code, 0);
  const auto model = fs::file_size(path("sizes/model.safetensors"));
  const auto shard = fs::file_size(path("sizes/checkpoints/step_000000000004/rank_00000.safetensors"));
  ASSERT_GT(shard, model + 4096);
  const auto limit = [&](const char* stream) {
    return fmt::format("bash -c 'ulimit -f {}; exec \"$@\" {}' bash", (model + shard) / 2048, stream);
  };
  const Outcome heard = run(tiny_train("heard", "--save-every 2"), limit(""));
  EXPECT_EQ(heard.exit_code, 0) << heard.err;
  EXPECT_TRUE(contains(heard.err, "cannot save the checkpoint")) << heard.err;
  const Outcome unheard = run(tiny_train("unheard", "--save-every 2"), limit("2>/dev/full"));
  EXPECT_EQ(unheard.exit_code, 0);
  for (const char* out : {"heard", "unheard"}) {
    EXPECT_TRUE(fs::exists(path(out) + "/model.safetensors"));
    EXPECT_FALSE(fs::exists(path(out) + "/checkpoints/step_000000000002"));
  }
}

}  // namespace
