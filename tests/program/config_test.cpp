// SPDX-License-Identifier: MIT
//
// Settings: where values come from, what is refused and in which words, and that a saved configuration gives
// the same run again.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "apps/methods/ab.h"
#include "apps/methods/late_cut.h"
#include "apps/plan/plan.h"
#include "apps/settings/config.h"
#include "apps/settings/setting.h"
#include "apps/train/build_run.h"
#include "engine/core/atomic_file.h"
#include "engine/sync/local.h"
#include "engine/sync/powersgd.h"
#include "tests/error_message.h"

namespace fs = std::filesystem;
using namespace ab;
using ab::test::contains;
using ab::test::message_of;

namespace ab {

/// Whether every setting is the same.
static bool operator==(const TrainConfig& a, const TrainConfig& b) {
  return std::ranges::all_of(train_settings(),
                             [&](const Setting& setting) { return setting.get(a) == setting.get(b); });
}

}  // namespace ab

namespace {

class ConfigTest : public testing::Test {
 protected:
  ConfigTest()
      : file_(testing::TempDir() + "abtrain_config_" + testing::UnitTest::GetInstance()->current_test_info()->name() +
              ".toml") {
    ::unsetenv("ABTRAIN_DATA_DIR");
  }
  ~ConfigTest() override { fs::remove(file_); }

  TrainConfig from_toml(const std::string& text, const std::vector<FlagValue>& flags = {}) {
    write_file_atomically(file_, text);
    return resolve_train_config(flags, file_);
  }
  std::string refused_toml(const std::string& text) {
    return message_of(ErrorKind::config, [&] { from_toml(text); });
  }
  std::string refused(const std::string& key, const std::string& value) {
    return message_of(ErrorKind::config, [&] { resolve_train_config({{key, value}}, ""); });
  }
  std::string file_;
};

template <class Options> const Options& of(const TrainConfig& config) { return config.of<Options>(); }

AbOptions ab_of(const TrainConfig& config) { return ab_settings(config); }

TEST_F(ConfigTest, DefaultsAreUsableAsTheyAre) {
  const TrainConfig config = resolve_train_config({}, "");
  EXPECT_EQ(config.model, "resnet20");
  EXPECT_EQ(config.epochs, 10);
  EXPECT_EQ(config.steps, 0);
  EXPECT_EQ(config.out, "runs/resnet20_dense");
}

// What ranks r are rounded up to follows the device, unless somebody says so or the authors' release did.
TEST_F(ConfigTest, TheMultipleOfRanksFollowsTheDevice) {
  const auto multiple = [this](const std::vector<FlagValue>& flags) {
    return ab_options(from_toml("method = \"ab\"\n", flags)).rank_policy.multiple;
  };
  EXPECT_EQ(multiple({}), 1);
  EXPECT_EQ(multiple({{"device", "cuda"}}), 8);
  EXPECT_EQ(multiple({{"device", "cuda:1"}, {"rank_multiple", "3"}}), 3);
  EXPECT_EQ(multiple({{"device", "cpu"}, {"rank_multiple", "8"}}), 8);
  EXPECT_EQ(multiple({{"device", "cuda"}, {"preset", "paper"}}), 1);
}

TEST_F(ConfigTest, EveryDefaultIsAllowed) {
  TrainConfig config;
  for (const Setting& setting : train_settings())
    if (!setting.unset_at_zero) {
      const std::string text = toml_text(setting, config);
      const bool quoted = text.size() >= 2 && (text[0] == '"' || text[0] == '[');
      const std::string bare = quoted ? text.substr(1, text.size() - 2) : text;
      EXPECT_NO_THROW(assign(setting, config, value_from_text(setting, bare, setting.flag()), setting.flag()))
          << setting.key;
    }
  EXPECT_EQ(config, TrainConfig{});
}

TEST_F(ConfigTest, KeysAreUniqueAndExplained) {
  std::set<std::string> keys;
  for (const FlagHelp& line : train_flag_help()) {
    EXPECT_TRUE(keys.insert(line.key).second) << line.key;
    EXPECT_GT(line.text.size(), 5u) << line.key;
    EXPECT_EQ(line.flag.find('_'), std::string::npos);
  }
  EXPECT_TRUE(keys.contains("ab.cycle_steps"));
}

TEST_F(ConfigTest, FlagsOverrideTheFileWhichOverridesDefaults) {
  const TrainConfig config =
      from_toml("lr = 0.4\nbatch_size = 32\nmethod = \"ab\"\n[ab]\ncycle_steps = 50\nratio = 0.25\n",
                {{"batch_size", "64"}, {"ab.ratio", "0.75"}});
  EXPECT_EQ(config.lr, 0.4);
  EXPECT_EQ(config.batch_size, 64);
  EXPECT_EQ(ab_settings(config).schedule.cycle_steps, 50);
  EXPECT_EQ(ab_settings(config).rank_policy.ratio, 0.75);
  EXPECT_EQ(config.momentum, TrainConfig{}.momentum);
}

TEST_F(ConfigTest, PathsBeginAtHomeAndAreTheSameFromEveryFolder) {
  ::setenv("HOME", "/home/somebody", 1);
  const TrainConfig config = from_toml("out = \"~/runs/x\"\ndata_dir = \"~/images\"\nweights = \"w/~/a\"");
  EXPECT_EQ(config.out, "/home/somebody/runs/x");
  EXPECT_EQ(config.data_dir, "/home/somebody/images");
  EXPECT_EQ(config.weights, std::filesystem::current_path().string() + "/w/~/a");
  EXPECT_EQ(resolve_train_config({{"out", "~"}}, "").out, "/home/somebody");
  EXPECT_EQ(resolve_train_config({{"out", "~else/x"}}, "").out, "~else/x");
  ::setenv("ABTRAIN_DATA_DIR", "~/cifar", 1);
  EXPECT_EQ(resolve_train_config({{"dataset", "cifar10"}}, "").data_dir, "/home/somebody/cifar");
  ::unsetenv("ABTRAIN_DATA_DIR");
  ::unsetenv("HOME");  // the account has one
  EXPECT_FALSE(resolve_train_config({{"out", "~/x"}}, "").out.starts_with("~"));
}

TEST_F(ConfigTest, TheSavedConfigurationGivesTheSameRun) {
  // Every setting differs from its default here: one that the table forgot to save would show.
  TrainConfig config;
  choose_method(config, "ab", "paper");
  for (const Setting& setting : train_settings()) {
    if (setting.flag_only || setting.key == "steps" || setting.key == "warmup_steps" || setting.brings_defaults)
      continue;
    const std::string where = setting.key;
    if (setting.type == SettingType::on_off) assign(setting, config, toml_text(setting, config) == "false", where);
    else if (!setting.words.empty())
      assign(setting, config,
             Value(setting.words.back()) == setting.get(config) ? setting.words.front() : setting.words.back(), where);
    else if (setting.type == SettingType::text)
      assign(setting, config, std::string(setting.is_path ? "/" : "") + "a \"b\" \\ ü\t", where);
    else if (setting.type == SettingType::list)
      assign(setting, config, std::vector<std::string>{"conv1.weight", "fc.weight"}, where);
    else if (setting.type == SettingType::numbers)
      assign(setting, config, std::vector<double>{setting.low + 0.25, setting.low + 0.75}, where);
    else if (setting.type == SettingType::real) assign(setting, config, 0.1234567890123456, where);
    else assign(setting, config, std::int64_t{8}, where);
  }
  config.lr = 0.2;
  config.betas = {0.25, 0.75}, config.rand_augment = {2, 7}, config.color_jitter = {0.1, 0.2, 0, 0.5};
  config.dataset = "imagenet", config.image_sizes = {6, 13, 8, 11};
  config.device = "cuda:3";
  config.network = "latency=4ms,bandwidth=20Gbps";
  ab_settings(config).schedule.full_rank_steps = 5;
  // Not together with deterministic, val_from_train, weights, rand_augment and cache_gb.
  config.autotune = false, config.val_samples = 0, config.init = Init::drawn, config.trivial_augment = false;
  config.framing.decode = Decode::exact;
  EXPECT_EQ(from_toml(to_toml(config)), config);

  TrainConfig in_steps = config;
  in_steps.epochs = 0, in_steps.steps = 900;
  in_steps.warmup_epochs = 0, in_steps.warmup_steps = 30;
  in_steps.deterministic = false, in_steps.autotune = true;
  in_steps.rand_augment.clear(), in_steps.trivial_augment = true;
  in_steps.val_from_train = 0, in_steps.val_samples = 7;
  in_steps.weights.clear(), in_steps.init = Init::ortho;
  in_steps.cache_gb = 0, in_steps.framing.decode = Decode::fast;
  EXPECT_EQ(from_toml(to_toml(in_steps)), in_steps);
  EXPECT_EQ(to_toml(from_toml(to_toml(in_steps))), to_toml(in_steps));
}

TEST_F(ConfigTest, TheWordAutoStandsForASizeOfBucketsInFilesToo) {
  const TrainConfig config = from_toml("bucket_mb = \"auto\"\n");
  EXPECT_EQ(config.bucket_mb, kAutoBucket);
  EXPECT_EQ(from_toml("", {{"bucket_mb", "auto"}}), config);
  EXPECT_EQ(from_toml(to_toml(config)), config);
  EXPECT_TRUE(contains(refused_toml("bucket_mb = \"small\"\n"), "bucket_mb cannot be 'small'; allowed is a number, 0"));
  EXPECT_TRUE(contains(refused_toml("bucket_mb = -1.0\n"), "bucket_mb cannot be -1; allowed is a number, 0"));
}

TEST_F(ConfigTest, OverwriteIsNeverSaved) {
  TrainConfig config = resolve_train_config({{"overwrite", "true"}}, "");
  EXPECT_TRUE(config.overwrite);
  EXPECT_FALSE(from_toml(to_toml(config)).overwrite);
  EXPECT_TRUE(contains(refused_toml("overwrite = true\n"), "give it as --overwrite, not in a file"));
}

TEST_F(ConfigTest, UnknownKeysAreErrorsWithPlaceAndNearestName) {
  EXPECT_TRUE(contains(refused_toml("lr = 0.1\nbacth_size = 3\n"),
                       file_ + ":2: bacth_size is not a setting; did you mean batch_size?"));
  EXPECT_TRUE(contains(refused_toml("[ab]\ncycle_step = 3\n"),
                       ":2: ab.cycle_step is not a setting; did you mean ab.cycle_steps?"));
  EXPECT_TRUE(contains(refused_toml("[training]\nlr = 3\n"), ":1: training is not a setting"));
  EXPECT_TRUE(contains(refused_toml("method = \"ab\"\n[ab]\nkeep = 0.9\n"), "did you mean late-cut.keep?"));
  EXPECT_FALSE(contains(refused_toml("zzzzzzzzzzzz = 3\n"), "did you mean"));
}

TEST_F(ConfigTest, BrokenTomlNamesTheLine) {
  EXPECT_TRUE(contains(refused_toml("lr = 0.1\nlr = 0.2\n"), file_ + ":2: "));
  EXPECT_TRUE(contains(refused_toml("lr = \n"), ":1: "));
  EXPECT_TRUE(contains(refused_toml("lr = 1e999\n"), "1e999"));
  EXPECT_TRUE(contains(message_of(ErrorKind::config, [] { resolve_train_config({}, "/no/such.toml"); }),
                       "cannot read /no/such.toml: No such file"));
}

TEST_F(ConfigTest, NumbersMustBeFiniteAndInRange) {
  for (const char* value : {"nan", "-nan", "inf", "-inf", "-1", "1e999", "1001", "", "x", "0.1x", " 0.1", "0,1"})
    EXPECT_TRUE(contains(refused("lr", value), "allowed is a number, 0 to 1000")) << value;
  for (const char* value : {"0", "-5", "65537", "99999999999999999999", "1.5", "1e3", "nan", "0x10", ""})
    EXPECT_TRUE(contains(refused("batch_size", value), "--batch-size cannot be")) << value;
  EXPECT_TRUE(contains(refused("epochs", "99999999999"), "allowed is an integer, 1 to 1e6"));
  EXPECT_TRUE(contains(refused("epochs", "0"), "--epochs cannot be 0"));
  EXPECT_TRUE(contains(refused("width", "0"), "--width cannot be 0; allowed is a number, above 0, up to 16"));
  EXPECT_TRUE(contains(refused("ab.group_size", "-2"), "an integer, -1 to 65536"));
  EXPECT_TRUE(contains(refused("betas", "0.9,1"), "--betas cannot be [0.9, 1]; allowed is"));
  EXPECT_TRUE(contains(refused_toml("betas = [0.9]\n"), "--betas takes two numbers"));
  for (const char* value : {"2", "2,1.5", "11,9"})
    EXPECT_TRUE(contains(refused("rand_augment", value), "--rand-augment takes two whole numbers")) << value;
  EXPECT_TRUE(contains(refused("color_jitter", "0.4,0.4"), "--color-jitter takes three numbers"));
  EXPECT_TRUE(contains(refused("color_jitter", "0.4,0.4,0,0.6"), "or a fourth too, of hue, up to 0.5"));
  EXPECT_TRUE(contains(refused("color_jitter", "0.4,0.4,11"), "each 0 to 10"));
  EXPECT_TRUE(
      contains(refused("repeated_augment", "0"), "--repeated-augment cannot be 0; allowed is an integer, 1 to"));
  EXPECT_TRUE(contains(refused_toml("lr = nan\n"), file_ + ":1: lr cannot be nan; allowed is a number, 0 to 1000"));
  EXPECT_TRUE(contains(refused_toml("lr = -inf\n"), "lr cannot be -inf"));
  EXPECT_TRUE(contains(refused_toml("batch_size = 0\n"), "batch_size cannot be 0; allowed is an integer, 1 to 65536"));
}

TEST_F(ConfigTest, ValuesMustHaveTheRightType) {
  EXPECT_TRUE(contains(refused_toml("lr = \"0.1\"\n"), "lr cannot be '0.1'"));
  EXPECT_TRUE(contains(refused_toml("batch_size = 1.5\n"), "batch_size cannot be 1.5"));
  EXPECT_TRUE(contains(refused_toml("batch_size = 2.0\n"), "batch_size cannot be 2.0; allowed is an integer"));
  EXPECT_TRUE(contains(refused_toml("augment = 1\n"), "augment cannot be 1; allowed is true or false"));
  EXPECT_TRUE(contains(refused_toml("model = 3\n"), "model cannot be 3"));
  EXPECT_TRUE(contains(refused_toml("lr = [0.1]\n"), "lr cannot be [0.1]"));
  EXPECT_TRUE(contains(refused_toml("lr = [0.1, \"a\"]\n"), "something else than either texts or numbers"));
  EXPECT_TRUE(contains(refused_toml("lr = [true]\n"), "something else than either texts or numbers"));
  for (const char* element : {"[0.7]", "2024-01-01", "{x = 1}"})
    EXPECT_TRUE(
        contains(refused_toml(fmt::format("[late-cut]\nat = [0.5, {}]\n", element)), "something else than either"));
  EXPECT_TRUE(contains(refused_toml("[late-cut]\nat = [0.5, 1.5]\n"), "each above 0, up to 1"));
  EXPECT_TRUE(contains(refused("late-cut.at", "0.5,x"), "--late-cut.at cannot be 'x'"));
  EXPECT_TRUE(contains(refused_toml("lr = 1979-05-27\n"), "neither"));
  EXPECT_TRUE(contains(refused_toml("ab = 3\n"), "ab is not a setting"));
  EXPECT_EQ(from_toml("lr = 1\n").lr, 1.0);  // an integer is a fine real number
}

TEST_F(ConfigTest, WordsOutsideTheListAreRefusedWithTheList) {
  EXPECT_TRUE(contains(refused("optimizer", "adam"), "--optimizer cannot be 'adam'; allowed is sgd, adamw or lars"));
  EXPECT_TRUE(contains(refused_toml("[ab]\nsync = \"fulll\"\n"), "allowed is full, with-stale, only-learned"));
  EXPECT_TRUE(contains(refused("nesterov", "maybe"), "allowed is true or false"));
}

TEST_F(ConfigTest, EpochsAndStepsExcludeEachOther) {
  EXPECT_TRUE(contains(refused_toml("epochs = 3\nsteps = 10\n"), "exclude each other"));
  EXPECT_TRUE(contains(message_of(ErrorKind::config,
                                  [] {
                                    resolve_train_config({{"epochs", "1"}, {"steps", "1"}}, "");
                                  }),
                       "--epochs and --steps exclude each other"));
  const TrainConfig config = from_toml("epochs = 3\nwarmup_epochs = 0.5\n", {{"steps", "10"}, {"warmup_steps", "2"}});
  EXPECT_EQ(config.epochs, 0);
  EXPECT_EQ(config.steps, 10);
  EXPECT_EQ(config.warmup_epochs, 0);
  EXPECT_EQ(config.warmup_steps, 2);
}

TEST_F(ConfigTest, AFlagOfAMethodThatDoesNotTrainIsRefused) {
  EXPECT_TRUE(
      contains(refused("ab.ratio", "0.5"), "--ab.ratio is a setting of method ab, which a run by method dense"));
  const auto late_cut_with = [](const char* key, const char* value) {
    return [=] { resolve_train_config({{"method", "late-cut"}, {key, value}}, ""); };
  };
  EXPECT_NO_THROW(late_cut_with("powersgd.rank", "3")()) << "which it begins with";
  EXPECT_TRUE(
      contains(message_of(ErrorKind::config, late_cut_with("local.average_every", "8")), "--local.average-every"));
  EXPECT_NO_THROW(from_toml("method = \"dense\"\n[ab]\nratio = 0.5\n")) << "a file may serve several methods";
}

TEST_F(ConfigTest, AFlagThatCountsBesideAnotherSettingIsRefusedWithoutIt) {
  const auto lars_with = [](const char* key, const char* value) {
    return [=] { resolve_train_config({{"optimizer", "lars"}, {key, value}}, ""); };
  };
  EXPECT_TRUE(contains(message_of(ErrorKind::config, lars_with("nesterov", "true")),
                       "--nesterov counts with --optimizer sgd only, which is \"lars\" here"));
  EXPECT_TRUE(contains(message_of(ErrorKind::config, lars_with("betas", "0.5,0.9")), "--optimizer adamw only"));
  EXPECT_NO_THROW(lars_with("momentum", "0.5")());
  EXPECT_NO_THROW(lars_with("nesterov", "false")());
  EXPECT_TRUE(contains(refused("lr_step_factor", "0.5"), "--lr-step-factor counts with --schedule step only"));
  EXPECT_TRUE(contains(refused("cache_disk_gb", "3"), "--cache-disk-gb counts with --cache-disk only"));
  EXPECT_TRUE(contains(message_of(ErrorKind::config,
                                  [] {
                                    resolve_train_config({{"augment", "false"}, {"shift", "2"}}, "");
                                  }),
                       "--shift counts with --augment true only, which is false here"));
  EXPECT_NO_THROW(resolve_train_config({{"shift", "2"}}, ""));
  EXPECT_TRUE(contains(refused("dense_steps", "5"), "--dense-steps counts with --method late-cut or local or"));
  EXPECT_NO_THROW(from_toml("optimizer = \"lars\"\nnesterov = true\n")) << "a file may serve several runs";
}

TEST_F(ConfigTest, AugmentationsThatExcludeEachOtherOrChangeNothingAreRefused) {
  EXPECT_TRUE(contains(refused_toml("trivial_augment = true\nrand_augment = [2, 9]\n"),
                       "--trivial-augment takes the place of --rand-augment; leave that out, or give it as 0,0"));
  EXPECT_TRUE(
      from_toml("rand_augment = [2, 9]\n", {{"trivial_augment", "true"}, {"rand_augment", "0,0"}}).trivial_augment);
  EXPECT_TRUE(contains(refused_toml("image_sizes = [96, 1, 128]\n"), "takes whole numbers in pairs"));
  EXPECT_TRUE(
      contains(refused_toml("image_sizes = [24, 1]\ndataset = \"synthetic\"\n"), "those of synthetic have one size"));
  EXPECT_TRUE(contains(refused_toml("decode = \"fast\"\ncache_gb = 1.0\n"),
                       "--cache-gb keeps all pixels of an image, which --decode fast does not decode; give one of"));
  const std::string alike = "augment = false\nrepeated_augment = 3\n";
  for (const char* nothing : {"", "rand_augment = [0, 9]\n", "color_jitter = [0, 0, 0]\n", "mixup = 0.8\n"})
    EXPECT_TRUE(contains(refused_toml(alike + nothing), "--repeated-augment 3 would show the same pixels 3 times"));
  for (const char* something : {"rand_augment = [1, 9]\n", "color_jitter = [0, 0.1, 0]\n", "trivial_augment = true\n",
                                "random_erasing = 0.1\n"})
    EXPECT_EQ(from_toml(alike + something).repeated_augment, 3);
}

TEST_F(ConfigTest, AFlagWithAnEmptyVariableIsRefused) {
  for (const char* key : {"resume", "weights", "out", "data_dir"})
    EXPECT_TRUE(contains(refused(key, ""), "is given without a value; is a variable empty?")) << key;
}

TEST_F(ConfigTest, ImagesToValidateOnComeFromOnePlace) {
  EXPECT_TRUE(contains(message_of(ErrorKind::config,
                                  [] {
                                    resolve_train_config({{"val_from_train", "9"}, {"val_samples", "5"}}, "");
                                  }),
                       "--val-from-train 9 takes the place of the test images"));
  TrainConfig config = resolve_train_config({{"val_from_train", "5000"}, {"dataset", "cifar10"}}, "", ConfigUse::plan);
  EXPECT_EQ(data_shape(config, 0).train, 45000);
  EXPECT_EQ(data_shape(config, 0).test, 5000);
  config.train_samples = 2000;
  EXPECT_TRUE(contains(message_of(ErrorKind::config, [&] { data_shape(config, 0); }),
                       "--val-from-train 5000 of 2000 training images leaves none to train on"));
}

TEST_F(ConfigTest, MethodsThatMakeUpdatesBringWhatTheyNeed) {
  const auto refused_with = [](std::vector<FlagValue> flags) {
    return message_of(ErrorKind::config, [&] {
      const TrainConfig given = resolve_train_config(flags, "");
      check_run(given, find_method(given.method), 2);
    });
  };
  for (const auto& [method, lr] : {std::pair{"dion", 0.02}, {"demo", 3e-3}}) {
    const TrainConfig config = from_toml(fmt::format("method = \"{}\"\n", method));
    EXPECT_EQ(config.momentum, 0);
    EXPECT_EQ(config.lr, lr);
    for (const FlagValue& flag :
         std::vector<FlagValue>{{"momentum", "0.9"}, {"optimizer", "adamw"}, {"nesterov", "true"}})
      EXPECT_TRUE(contains(refused_with({{"method", method}, {"steps", "5"}, flag}), "--optimizer sgd --momentum 0"));
    EXPECT_TRUE(
        contains(refused_with({{"method", method}, {"steps", "5"}, {"max_grad_norm", "1"}}), "--max-grad-norm"));
  }
  const TrainConfig gradients = resolve_train_config(
      {{"method", "demo"}, {"demo.sign", "false"}, {"momentum", "0.9"}, {"max_grad_norm", "1"}, {"steps", "5"}}, "");
  EXPECT_NO_THROW(check_run(gradients, find_method("demo"), 2)) << "without signs it makes gradients";
}

TEST_F(ConfigTest, SettingsThatDoNotFitTogetherAreRefused) {
  const TrainConfig no_factors =
      resolve_train_config({{"method", "ab"}, {"ab.cycle_steps", "10"}, {"ab.full_rank_steps", "10"}}, "");
  EXPECT_TRUE(contains(message_of(ErrorKind::config, [&] { check_run(no_factors, find_method("ab"), 2); }),
                       "leaves no step for the factors"));
  EXPECT_TRUE(contains(refused("dataset", "cifar100"), "dataset cifar100 needs --data-dir"));
  EXPECT_TRUE(contains(refused("min_lr", "0.5"), "--min-lr 0.5 is above --lr 0.1"));
  EXPECT_TRUE(contains(refused_toml("autotune = true\ndeterministic = true\n"), "--autotune takes what is fastest"));
}

TEST_F(ConfigTest, ThePaperPresetIsAStartThatOtherSettingsOverride) {
  const auto preset = [](const char* name) { return resolve_train_config({{"method", "ab"}, {"preset", name}}, ""); };
  const TrainConfig paper = preset("paper");
  EXPECT_EQ(ab_settings(paper).schedule.first_split, 4330);
  EXPECT_EQ(ab_settings(paper).schedule.cycle_steps, 759);
  EXPECT_EQ(ab_settings(paper).schedule.full_rank_steps, 60);
  EXPECT_EQ(ab_settings(paper).schedule.rebound_steps, 267);
  EXPECT_EQ(ab_settings(paper).sync, SyncMode::only_b);
  EXPECT_EQ(ab_settings(paper).rank_policy.cutoff, 0.15);
  EXPECT_FALSE(ab_settings(paper).schedule.cut_at_warmup);
  const TrainConfig changed =
      from_toml("method = \"ab\"\npreset = \"paper\"\n[ab]\ncycle_steps = 100\n", {{"ab.cut_at_warmup", "true"}});
  EXPECT_EQ(ab_settings(changed).schedule.cycle_steps, 100);
  EXPECT_EQ(ab_settings(changed).schedule.first_split, 4330);
  EXPECT_TRUE(ab_settings(changed).schedule.cut_at_warmup);
  EXPECT_EQ(from_toml(to_toml(changed)), changed);
  // A preset on the command line takes the place of the file's.
  EXPECT_EQ(ab_of(from_toml("method = \"ab\"\npreset = \"paper\"\n", {{"preset", "default"}})), AbOptions{});
}

TEST_F(ConfigTest, TheLateCutBringsWhatGoesWithIt) {
  const TrainConfig nodes = from_toml("method = \"late-cut\"\n", {{"preset", "nodes"}, {"late-cut.at", "0.5"}});
  EXPECT_EQ(late_cut_settings(nodes).at, std::vector<double>{0.5});
  EXPECT_EQ(late_cut_settings(nodes).low_rank_method, "local");
  EXPECT_EQ(of<LocalOptions>(nodes).node_size, 0);
  EXPECT_EQ(nodes.comm_dtype, DType::bfloat16);
  const std::vector<FlagValue> alone{{"preset", "nodes"}, {"local.node_size", "1"}};
  EXPECT_EQ(of<LocalOptions>(from_toml("method = \"late-cut\"\n", alone)).node_size, 1);
  // Begun when buckets had to be given.
  EXPECT_NO_THROW(check_resumable(from_toml("bucket_mb = 4.0\n"), from_toml("")));
  const auto shares = [this](const char* how) {
    return from_toml(fmt::format("cache_gb = 1\ncache_share = \"{}\"\n", how));
  };
  EXPECT_NO_THROW(check_resumable(shares("world"), shares("off"))) << "the same batches";
  EXPECT_TRUE(contains(message_of(ErrorKind::config, [&] { check_resumable(shares("world"), shares("node")); }),
                       "--cache-share \"node\" (it was \"world\")"));
  // As long as nobody says otherwise, and if it trains.
  EXPECT_EQ(from_toml("method = \"late-cut\"\n").comm_dtype, DType::bfloat16);
  EXPECT_EQ(from_toml("method = \"late-cut\"\ncomm_dtype = \"fp32\"\n").comm_dtype, DType::float32);
  EXPECT_EQ(from_toml("method = \"ab\"\n").comm_dtype, DType::float32);
  EXPECT_EQ(from_toml("method = \"late-cut\"\npreset = \"nodes\"\n", {{"method", "dense"}}).comm_dtype, DType::float32)
      << "of another method";
  EXPECT_TRUE(contains(refused("preset", "nodes"), "--preset cannot be 'nodes'; allowed with method dense is default"));
  const TrainConfig cut = from_toml("method = \"late-cut\"\n");
  EXPECT_EQ(of<PowerSgdOptions>(cut).rank, 0.25);
  EXPECT_EQ(of<PowerSgdOptions>(from_toml("method = \"late-cut\"\n[powersgd]\nrank = 8\n")).rank, 8);
  for (const std::vector<FlagValue>& flags : {std::vector<FlagValue>{},
                                              {{"preset", "nodes"}},
                                              {{"preset", "nodes"}, {"local.node_size", "2"}},
                                              {{"powersgd.rank", "2"}},
                                              {{"late-cut.full_rank_method", "acpsgd"}, {"dense_steps", "7"}},
                                              {{"late-cut.low_rank_method", "acpsgd"}, {"acpsgd.rank", "3"}},
                                              {{"preset", "default"}}}) {
    const TrainConfig config = from_toml("method = \"late-cut\"\n", flags);
    EXPECT_EQ(from_toml(to_toml(config)), config);
  }
  TrainConfig changed = cut;
  changed.of<PowerSgdOptions>().rank = 9;
  EXPECT_TRUE(contains(message_of(ErrorKind::config, [&] { check_resumable(cut, changed); }), "--powersgd.rank 9"));
}

TEST_F(ConfigTest, WhatALateCutKeepsIsOneNumberOrOneForEachCut) {
  const auto kept = [&](const std::string& own, std::size_t cut) {
    return late_cut_settings(from_toml("[late-cut]\nat = [0.4, 0.7]\n" + own)).kept(cut);
  };
  EXPECT_EQ(kept("", 1), 0.995);
  EXPECT_EQ(kept("rank_policy = \"loss-budget\"\n", 0), 0.25);
  EXPECT_EQ(kept("rank_policy = \"ratio\"\n", 0), 0.5);
  EXPECT_EQ(kept("keep = [0.9]\n", 1), 0.9);
  EXPECT_EQ(kept("keep = [0.9, 0.8]\n", 1), 0.8);
}

TEST_F(ConfigTest, WhatAFlagPutsInPlaceOfASavedMethodBringsItsOwn) {
  const std::string dense = to_toml(from_toml("")), cut = to_toml(from_toml("method = \"late-cut\"\n"));
  EXPECT_EQ(of<PowerSgdOptions>(from_toml(dense, {{"method", "late-cut"}})).rank, 0.25);
  const std::vector<FlagValue> hook{{"method", "powersgd"}, {"preset", "torch-hook"}};
  EXPECT_EQ(of<PowerSgdOptions>(from_toml(dense, hook)), of<PowerSgdOptions>(from_toml("", hook)));
  const std::vector<FlagValue> nodes{{"method", "late-cut"}, {"preset", "nodes"}};
  EXPECT_EQ(late_cut_settings(from_toml(dense, nodes)).low_rank_method, "local");
  EXPECT_EQ(of<LocalOptions>(from_toml(dense, nodes)).node_size, 0);
  // The run's own says nothing new; another would change nothing.
  EXPECT_EQ(from_toml(cut, {{"method", "late-cut"}, {"preset", "default"}}), from_toml(cut));
  EXPECT_TRUE(
      contains(message_of(ErrorKind::config,
                          [&] {
                            from_toml(cut, {{"preset", "nodes"}});
                          }),
               "would change nothing: " + file_ + " is of a run and gives every setting of its method already"));
}

TEST_F(ConfigTest, ASavedRunOfAnotherVersionIsRefused) {
  const std::string saved = to_toml(from_toml("method = \"ab\"\n"));
  std::string less = saved;
  less.erase(saved.find("gauge = "), std::string("gauge = \"orthonormal\"\n").size());
  EXPECT_TRUE(contains(refused_toml(less), "another version of abtrain, which had no --ab.gauge"));
  EXPECT_NO_THROW(from_toml("# mine" + less.substr(less.find('\n'))));
  less = saved;
  less.erase(saved.find("dense_steps = "), std::string("dense_steps = -1\n").size());
  EXPECT_TRUE(contains(refused_toml(less), "another version of abtrain, which had no --dense-steps"));
  for (const char* more : {"svd = \"gram\"\n", "nonsense = 1\n"})
    EXPECT_TRUE(contains(refused_toml(saved + more), "the run was saved by another version of abtrain")) << more;
}

TEST_F(ConfigTest, PresetsOfRivalsAreStartsToo) {
  const TrainConfig hook = from_toml("method = \"powersgd\"\npreset = \"torch-hook\"\n[powersgd]\nmin_rate = 3\n");
  const std::string text = to_toml(hook);
  for (const char* line : {"\nrank = 1.0\n", "\ndense_steps = 1000\n", "\nmin_rate = 3.0\n"})
    EXPECT_TRUE(contains(text, line)) << line << text;
  EXPECT_EQ(from_toml(text), hook);
  EXPECT_TRUE(contains(to_toml(resolve_train_config({{"method", "scalecom"}, {"preset", "large-batch"}}, "")),
                       "\nbeta = 0.1\n"));
  EXPECT_TRUE(
      contains(to_toml(resolve_train_config({{"method", "acpsgd"}, {"preset", "release"}}, "")), "\nmin_rate = 0.0\n"));
}

TEST_F(ConfigTest, ModesOfArtopkAreWords) {
  const TrainConfig automatic =
      from_toml("method = \"artopk\"\n[artopk]\nratio = 0.5\nmode = \"auto\"\nprobe_every = 7\nleast_ratio = 0.25\n");
  const std::string text = to_toml(automatic);
  for (const char* line : {"\nratio = 0.5\n", "\nmode = \"auto\"\n", "\nprobe_every = 7\n", "\nleast_ratio = 0.25\n"})
    EXPECT_TRUE(contains(text, line)) << line << text;
  EXPECT_EQ(from_toml(text), automatic);
  EXPECT_TRUE(contains(to_toml(resolve_train_config({{"method", "artopk"}}, "")), "\nmode = \"star\"\n"));
  EXPECT_THROW(resolve_train_config({{"method", "artopk"}, {"artopk.mode", "ring"}}, ""), Error);
  EXPECT_THROW(resolve_train_config({{"method", "artopk"}, {"artopk.ratio", "0"}}, ""), Error);
}

TEST_F(ConfigTest, HelpSaysWhereThePaperDiffers) {
  for (const FlagHelp& line : train_flag_help()) {
    if (line.key != "ab.cut_at_warmup") continue;
    EXPECT_TRUE(contains(line.text, "default true; paper false"));
    return;
  }
  ADD_FAILURE() << "no help for ab.cut_at_warmup";
}

TEST_F(ConfigTest, TheEnvironmentNamesTheCifar10Folder) {
  ::setenv("ABTRAIN_DATA_DIR", "/data/cifar", 1);
  EXPECT_EQ(resolve_train_config({{"dataset", "cifar10"}}, "").data_dir, "/data/cifar");
  EXPECT_EQ(resolve_train_config({{"dataset", "cifar10"}, {"data_dir", "/mine"}}, "").data_dir, "/mine");
  EXPECT_EQ(resolve_train_config({{"dataset", "synthetic"}}, "").data_dir, "");
  ::unsetenv("ABTRAIN_DATA_DIR");
  EXPECT_TRUE(contains(refused("dataset", "cifar10"), "ABTRAIN_DATA_DIR"));
}

TEST_F(ConfigTest, ListsOfNamesComeFromFlagsAndFiles) {
  const std::vector<std::string> names{"conv1.weight", "fc.weight"};
  EXPECT_EQ(
      ab_of(resolve_train_config({{"method", "ab"}, {"ab.always_sync", "conv1.weight,fc.weight"}}, "")).always_sync,
      names);
  EXPECT_EQ(ab_of(from_toml("[ab]\nalways_sync = [\n  \"conv1.weight\",\n  \"fc.weight\",\n]\n")).always_sync, names);
}

TEST_F(ConfigTest, NearestNameWantsToBeNear) {
  EXPECT_EQ(nearest_name("lrr", {"lr", "out"}), "lr");
  EXPECT_EQ(nearest_name("batchsize", {"batch_size", "bucket_mb"}), "batch_size");
  EXPECT_EQ(nearest_name("completely_else", {"lr", "out"}), "");
  EXPECT_EQ(nearest_name(std::string(100000, 'x'), {"lr"}), "");
}

TEST_F(ConfigTest, AMethodInPlaceOfASavedOneStartsFromItsOwnSettings) {
  const std::string dense = to_toml(resolve_config_text({{"method", "dense"}}, "", ""));
  const std::string cut = to_toml(resolve_config_text({{"method", "late-cut"}}, "", ""));
  const std::string hook = to_toml(resolve_config_text({{"method", "powersgd"}, {"preset", "torch-hook"}}, "", ""));
  TrainConfig paper;
  choose_method(paper, "powersgd", "paper");
  for (const std::string& saved : {dense, cut}) {
    const TrainConfig config = resolve_config_text({{"method", "powersgd"}, {"preset", "paper"}}, saved, "saved");
    EXPECT_EQ(config.dense_steps, paper.dense_steps);
    EXPECT_EQ(config.of<PowerSgdOptions>(), paper.of<PowerSgdOptions>());
  }
  EXPECT_EQ(resolve_config_text({{"method", "acpsgd"}}, hook, "saved").dense_steps, TrainConfig{}.dense_steps);
  EXPECT_EQ(resolve_config_text({{"method", "ab"}, {"preset", "paper"}}, dense, "saved").execution, Execution::form_w);
}

}  // namespace
