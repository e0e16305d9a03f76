// SPDX-License-Identifier: MIT
//
// Checkpoints come back bit for bit, replicas are stored once, and no damage, full disk or stranger in the
// folder does more than cost the newest checkpoint.
#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "engine/core/atomic_file.h"
#include "engine/io/checkpoint.h"
#include "engine/io/checkpoint_folder.h"
#include "engine/io/manifest.h"
#include "tests/checkpoint_state.h"
#include "tests/error_message.h"
#include "tests/folder_test.h"
#include "tests/tensor_values.h"

namespace fs = std::filesystem;
using namespace ab;
using ab::test::contains;
using ab::test::message_of;
using ab::test::same_bits;
using ab::test::state_of;

namespace {

class CheckpointTest : public test::FolderTest {
 protected:
  std::string path(std::int64_t step) const { return checkpoint_path(folder_, step); }
  /// What lies in the folder, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
};

void on_ranks(int ranks, const std::function<void(Comm&)>& body) { run_thread_ranks(ranks, {}, body); }

void save_on(int ranks, const std::string& folder, std::int64_t step, int keep = 1000) {
  on_ranks(ranks, [&](Comm& world) { save_checkpoint(folder, step, state_of(world.rank(), step), keep, world); });
}

/// Loads on all ranks; the step all got, with the state each had saved at it. -1: there is none.
std::int64_t load_on(int ranks, const std::string& folder) {
  std::vector<std::int64_t> steps(static_cast<std::size_t>(ranks), -1);
  on_ranks(ranks, [&](Comm& world) {
    const auto found = load_newest_checkpoint(folder, world);
    if (!found) return;
    EXPECT_EQ(found->path, checkpoint_path(folder, found->step));
    EXPECT_TRUE(same_bits(state_of(world.rank(), found->step), found->state)) << "rank " << world.rank();
    steps[static_cast<std::size_t>(world.rank())] = found->step;
  });
  for (const std::int64_t step : steps) EXPECT_EQ(step, steps[0]);
  return steps[0];
}

std::string contents(const std::string& file) { return read_file(file, ErrorKind::data); }
void overwrite(const std::string& file, const std::string& text) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << text;
}

class CheckpointRanks : public CheckpointTest, public testing::WithParamInterface<int> {};

TEST_P(CheckpointRanks, EveryTypeAndValueComesBackBitForBit) {
  const auto everything = [](int rank) {
    StateDict state;
    const auto own = static_cast<std::uint8_t>(rank);
    state.put("float32", Tensor::from(std::vector<float>{1, -0.0f, -3.4e38f, 1e-40f, static_cast<float>(rank)}, {5}));
    state.put("float64", Tensor::from(std::vector<double>{3.25, 1e-310, -0.0}, {3, 1}));
    state.put("bfloat16", Tensor::from(std::vector<bfloat16>{bfloat16(1.5f), bfloat16(-3.3e38f)}, {2}));
    state.put("int64", Tensor::from(std::vector<std::int64_t>{-1, INT64_MAX, rank}, {1, 3}));
    state.put("uint8", Tensor::from(std::vector<std::uint8_t>{0, 255, own}, {3, 1, 1}));
    state.put("scalar", Tensor::scalar(7));
    state.put("empty", Tensor({0, 4}));
    if (rank > 0) state.put("only.on.later.ranks", Tensor::scalar(rank));
    state.put("text", std::string("quotes \" and \\ and ü and\nlines"));
    state.put("empty text", std::string());
    state.put("integer", std::int64_t{INT64_MIN + rank});
    state.put("number", -0.0);
    state.put("nan", static_cast<double>(kNaN));
    return state;
  };
  on_ranks(GetParam(), [&](Comm& world) {
    save_checkpoint(folder_, 7, everything(world.rank()), 2, world);
    const auto found = load_newest_checkpoint(folder_, world);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->step, 7);
    EXPECT_TRUE(same_bits(everything(world.rank()), found->state));
    EXPECT_TRUE(std::signbit(found->state.number("number")));
  });
}

TEST_P(CheckpointRanks, AnEmptyStateIsAStateToo) {
  on_ranks(GetParam(), [&](Comm& world) {
    save_checkpoint(folder_, 0, {}, 1, world);
    const auto found = load_newest_checkpoint(folder_, world);
    ASSERT_TRUE(found.has_value());
    EXPECT_TRUE(found->state.tensors().empty() && found->state.values().empty());
  });
}

TEST_P(CheckpointRanks, ReplicasAreStoredOnce) {
  constexpr std::int64_t kBytes = 400'000;
  on_ranks(GetParam(), [&](Comm& world) {
    StateDict state;
    state.put("weight", normal_values({kBytes / 4}, 1));
    state.put("own", Tensor::scalar(world.rank()));
    save_checkpoint(folder_, 1, state, 1, world);
  });
  std::uintmax_t bytes = 0;
  for (const auto& file : fs::directory_iterator(path(1))) bytes += fs::file_size(file);
  EXPECT_GT(bytes, static_cast<std::uintmax_t>(kBytes));
  EXPECT_LT(bytes, static_cast<std::uintmax_t>(kBytes + 2000 * GetParam()));
}

/// The rank that failed, as errors name it where there are several.
std::string named(int rank, int ranks) { return ranks == 1 ? "" : fmt::format("rank {}: ", rank); }

TEST_P(CheckpointRanks, AFailingRankPublishesNothingAndEndsAllRanks) {
  save_on(GetParam(), folder_, 1);
  const int broken = GetParam() - 1;
  const auto state = [&](int rank) {
    StateDict state = state_of(rank, 2);
    if (rank == broken) state.put("text", std::string("not UTF-8: \xff"));
    return state;
  };
  std::atomic<int> failed = 0;
  on_ranks(GetParam(), [&](Comm& world) {
    const std::string message =
        message_of(ErrorKind::checkpoint, [&] { save_checkpoint(folder_, 2, state(world.rank()), 1, world); });
    EXPECT_TRUE(contains(message, "step_000000000002: " + named(broken, GetParam()) + "bug in abtrain"));
    ++failed;
  });
  EXPECT_EQ(failed, GetParam());
  EXPECT_EQ(names(), std::vector<std::string>{"step_000000000001"});
  EXPECT_EQ(load_on(GetParam(), folder_), 1);
}

INSTANTIATE_TEST_SUITE_P(Counts, CheckpointRanks, testing::Values(1, 2, 4));

/// While it lives, no file of this process grows beyond `bytes`.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST_F(CheckpointTest, AFullDiskLeavesTheOldCheckpoint) {
  save_on(2, folder_, 1);
  {
    const FileSizeLimit limit(100'000);
    on_ranks(2, [&](Comm& world) {
      StateDict state;
      state.put("weight", normal_values({world.rank() == 1 ? 100'000 : 10}, 1));
      const std::string message =
          message_of(ErrorKind::checkpoint, [&] { save_checkpoint(folder_, 2, state, 1, world); });
      EXPECT_TRUE(contains(message, "step_000000000002: rank 1: cannot write"));
      EXPECT_TRUE(contains(message, "File too large"));
    });
  }
  EXPECT_EQ(names(), std::vector<std::string>{"step_000000000001"});
  EXPECT_EQ(load_on(2, folder_), 1);
}

TEST_F(CheckpointTest, AManifestThatCannotBeWrittenPublishesNothing) {
  const auto save = [&](std::int64_t step) {
    on_ranks(2, [&](Comm& world) {
      StateDict state;
      for (int i = 0; i < 200; ++i) state.put(fmt::format("t{}", i), Tensor::scalar(i));
      save_checkpoint(folder_, step, state, 1, world);
    });
  };
  save(1);
  const auto manifest = fs::file_size(manifest_path(path(1))), shard = fs::file_size(shard_path(path(1), 0));
  ASSERT_GT(manifest, shard);
  const FileSizeLimit limit((manifest + shard) / 2);
  EXPECT_TRUE(contains(message_of(ErrorKind::checkpoint, [&] { save(2); }), "manifest.json: File too large"));
  EXPECT_EQ(names(), std::vector<std::string>{"step_000000000001"});
}

TEST_F(CheckpointTest, AFolderThatCannotBeMadeIsAnError) {
  fs::create_directories(folder_);
  overwrite(folder_ + "/file", "");
  on_ranks(2, [&](Comm& world) {
    EXPECT_TRUE(contains(
        message_of(ErrorKind::checkpoint, [&] { save_checkpoint(folder_ + "/file/x", 1, {}, 1, world); }), "rank 0"));
  });
}

TEST_F(CheckpointTest, TheNewestStayAndLeftoversGo) {
  fs::create_directories(folder_ + "/.saving_step_000000000009.123/part");
  fs::create_directories(folder_ + "/.removing_step_000000000002");
  fs::create_directories(folder_ + "/step_12");
  overwrite(folder_ + "/notes.txt", "of the user");
  for (const std::int64_t step : {1, 5, 20, 300}) save_on(2, folder_, step, 2);
  EXPECT_EQ(names(), (std::vector<std::string>{"notes.txt", "step_000000000020", "step_000000000300", "step_12"}));
  EXPECT_EQ(load_on(2, folder_), 300);

  // A run that went back saves on; what it could not read stays, and is not what pushes its own ones out.
  save_on(2, folder_, 21, 1);
  EXPECT_EQ(checkpoints_in(folder_), (std::vector<std::int64_t>{300, 21}));
  // The same step once more.
  save_on(2, folder_, 300, 2);
  EXPECT_EQ(names(), (std::vector<std::string>{"notes.txt", "step_000000000021", "step_000000000300", "step_12"}));
  EXPECT_EQ(load_on(2, folder_), 300);
}

// As a file that a network disk keeps under another name as long as it is open somewhere.
TEST_F(CheckpointTest, ALeftoverThatCannotBeRemovedStaysAndTheRunSavesOn) {
  const std::string leftover = folder_ + "/.removing_step_000000000002";
  fs::create_directories(leftover + "/part");
  overwrite(leftover + "/part/.nfs000001", "open elsewhere");
  fs::permissions(folder_, fs::perms::all);
  fs::permissions(leftover + "/part", fs::perms::owner_read | fs::perms::owner_exec);
  testing::internal::CaptureStderr();
  on_ranks(2, [&](Comm& world) {
    if (::getuid() == 0) ::setfsuid(65534);  // of this thread: nobody may write where root always may
    for (const std::int64_t step : {5, 20}) save_checkpoint(folder_, step, state_of(world.rank(), step), 1, world);
    if (::getuid() == 0) ::setfsuid(0);
  });
  EXPECT_TRUE(contains(testing::internal::GetCapturedStderr(), "cannot remove " + leftover));
  EXPECT_EQ(names(), (std::vector<std::string>{".removing_step_000000000002", "step_000000000020"}));
  fs::permissions(leftover + "/part", fs::perms::owner_all);
}

TEST_F(CheckpointTest, NoCheckpointIsNoError) {
  EXPECT_EQ(load_on(2, folder_), -1);
  fs::create_directories(folder_);
  EXPECT_EQ(load_on(2, folder_), -1);
}

TEST_F(CheckpointTest, AnotherNumberOfRanksIsRefused) {
  save_on(2, folder_, 1);
  on_ranks(4, [&](Comm& world) {
    EXPECT_TRUE(contains(message_of(ErrorKind::checkpoint, [&] { load_newest_checkpoint(folder_, world); }),
                         "was saved by 2 ranks and cannot be continued by 4"));
  });
}

TEST_F(CheckpointTest, RanksAtDifferentStepsDoNotSave) {
  on_ranks(2, [&](Comm& world) {
    EXPECT_TRUE(
        contains(message_of(ErrorKind::checkpoint, [&] { save_checkpoint(folder_, 3 + world.rank(), {}, 1, world); }),
                 "rank 0 saves step 3 and rank 1 step 4"));
  });
  EXPECT_TRUE(names().empty());
}

TEST_F(CheckpointTest, TrafficIsCountedAsCheckpoint) {
  on_ranks(2, [&](Comm& world) {
    world.ledger().set_phase("low-rank");
    save_checkpoint(folder_, 1, state_of(world.rank(), 1), 1, world);
    load_newest_checkpoint(folder_, world);
    EXPECT_EQ(world.ledger().phase(), "low-rank");
    EXPECT_GT(world.ledger().total_of_phase("checkpoint").payload_bytes, 0);
    EXPECT_EQ(world.ledger().total_of_phase("low-rank").calls, 0);
  });
}

/// Two checkpoints of two ranks; each test damages the newer one.
class DamageTest : public CheckpointTest {
 protected:
  void SetUp() override {
    save_on(2, folder_, 1);
    save_on(2, folder_, 2);
  }
  std::string shard(int rank) const { return shard_path(path(2), rank); }
  std::string manifest() const { return manifest_path(path(2)); }

  /// Loading falls back to the older one with one warning, which says `expected`.
  void expect_fallback(const std::string& expected) const {
    testing::internal::CaptureStderr();
    const std::int64_t step = load_on(2, folder_);
    const std::string warning = testing::internal::GetCapturedStderr();
    EXPECT_EQ(step, 1) << expected;
    EXPECT_TRUE(contains(warning, "step_000000000002 is passed over: rank "));
    EXPECT_TRUE(contains(warning, expected));
    EXPECT_EQ(std::count(warning.begin(), warning.end(), '\n'), 1) << warning;
  }
};

TEST_F(DamageTest, AFlippedBitAnywhereIsFound) {
  for (const std::string& file : {manifest(), shard(0), shard(1)}) {
    const std::string whole = contents(file);
    const Philox random{11, whole.size()};
    constexpr std::uint64_t kRegions = 40;  // one flip in each
    for (std::uint64_t region = 0; region < kRegions; ++region) {
      const std::size_t begin = whole.size() * region / kRegions, end = whole.size() * (region + 1) / kRegions;
      std::string damaged = whole;
      damaged[begin + random.below(region, end - begin)] ^= static_cast<char>(1u << random.below(1000 + region, 8));
      overwrite(file, damaged);
      expect_fallback("rank ");
    }
    overwrite(file, whole);
  }
  EXPECT_EQ(load_on(2, folder_), 2);
}

TEST_F(DamageTest, TruncatedAndMissingFilesAreFound) {
  for (const std::string& file : {manifest(), shard(0), shard(1)}) {
    const std::string whole = contents(file);
    for (const std::size_t size : {std::size_t{0}, std::size_t{7}, whole.size() / 2, whole.size() - 1}) {
      overwrite(file, whole.substr(0, size));
      expect_fallback(file);
    }
    overwrite(file, whole + "x");
    expect_fallback(file);
    fs::remove(file);
    expect_fallback(file + ": No such file");
    overwrite(file, whole);
  }
  fs::remove(shard(0));
  fs::create_directory(shard(0));
  expect_fallback("not a file");
}

TEST_F(DamageTest, FilesOfAnotherStepOrRankAreFound) {
  const std::string whole = contents(manifest());
  overwrite(manifest(), contents(manifest_path(path(1))));
  expect_fallback("is that of step 1");
  overwrite(manifest(), whole);
  const std::string first = contents(shard(0)), second = contents(shard(1));
  overwrite(shard(1), first);
  expect_fallback("rank 1: " + shard(1));
  overwrite(shard(1), contents(shard_path(path(1), 1)));
  expect_fallback("rank 1: " + shard(1));
  overwrite(shard(1), second);
  overwrite(shard(0), contents(shard_path(path(1), 0)));
  expect_fallback("rank 0: " + shard(0));
}

TEST_F(DamageTest, AFileThatDoesNotBelongDoesNoHarm) {
  overwrite(path(2) + "/.nfs000001", "of the file system");
  overwrite(shard_path(path(2), 2), "of nobody");
  EXPECT_EQ(load_on(2, folder_), 2);
}

TEST_F(DamageTest, ANewerFormatIsPassedOver) {
  std::string text = contents(manifest());
  const std::size_t at = text.find("\"version\":1");
  ASSERT_NE(at, std::string::npos);
  overwrite(manifest(), text.replace(at, 11, "\"version\":2"));
  expect_fallback("has format version 2, this program reads version 1");
}

TEST_F(DamageTest, NothingWholeIsAnError) {
  fs::remove(manifest());
  fs::remove(shard_path(path(1), 1));
  testing::internal::CaptureStderr();
  on_ranks(2, [&](Comm& world) {
    const std::string message = message_of(ErrorKind::checkpoint, [&] { load_newest_checkpoint(folder_, world); });
    EXPECT_TRUE(contains(message, "none of the 2 checkpoints in " + folder_));
    EXPECT_TRUE(contains(message, "rank 1: "));
  });
  const std::string warnings = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(warnings.begin(), warnings.end(), '\n'), 2) << warnings;
}

// ---- NaN and infinity ----

/// A checkpoint of one rank as save_checkpoint() would write it if it looked at nothing.
void store_unchecked(const std::string& folder, std::int64_t step, const StateDict& state) {
  const std::string path = checkpoint_path(folder, step);
  fs::create_directories(path);
  TensorFile shard{state.values(), {}};
  for (const auto& [name, tensor] : state.tensors()) shard.tensors.push_back({name, tensor});
  write_safetensors(shard_path(path, 0), shard);
  write_file_atomically(manifest_path(path), to_json(merge({describe(step, state)})));
}

StateDict with_value(double value, DType dtype = DType::float32) {
  StateDict state = state_of(0, 1);
  Tensor tensor = Tensor::zeros({100'000}, dtype);
  dispatch_float(dtype, "with_value", [&]<class T>() { tensor.data<T>()[70'001] = static_cast<T>(value); });
  state.put("optimizer.fc.first_moment", tensor);
  return state;
}

TEST_P(CheckpointRanks, NothingThatIsNotFiniteIsSaved) {
  save_on(GetParam(), folder_, 1);
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16, DType::float64})
    for (const double value : {std::nan(""), HUGE_VAL, -HUGE_VAL})
      on_ranks(GetParam(), [&](Comm& world) {
        const bool last = world.rank() + 1 == world.size();
        const std::string message = message_of(ErrorKind::numerics, [&] {
          save_checkpoint(folder_, 2, last ? with_value(value, dtype) : state_of(world.rank(), 2), 1, world);
        });
        EXPECT_TRUE(contains(message, "is not saved, " + named(GetParam() - 1, GetParam()) +
                                          "optimizer.fc.first_moment holds NaN or infinity"));
      });
  EXPECT_EQ(names(), std::vector<std::string>{fs::path(path(1)).filename().string()});
  EXPECT_EQ(load_on(GetParam(), folder_), 1);
}

TEST_F(CheckpointTest, OneThatIsNotFiniteIsPassedOver) {
  store_unchecked(folder_, 1, with_value(1));
  EXPECT_EQ(load_newest_checkpoint(folder_, *make_self_comm())->step, 1);
  store_unchecked(folder_, 2, with_value(-HUGE_VAL));
  EXPECT_EQ(load_newest_checkpoint(folder_, *make_self_comm())->step, 1);
  EXPECT_TRUE(contains(message_of(ErrorKind::checkpoint, [&] { load_checkpoint_of(2, folder_, *make_self_comm()); }),
                       "optimizer.fc.first_moment holds NaN or infinity"));
}

TEST_P(CheckpointRanks, AnOlderOneCanBeChosen) {
  for (const std::int64_t step : {3, 5, 8}) save_on(GetParam(), folder_, step);
  on_ranks(GetParam(), [&](Comm& world) {
    const Checkpoint chosen = load_checkpoint_of(5, folder_, world);
    EXPECT_EQ(chosen.step, 5);
    EXPECT_TRUE(same_bits(state_of(world.rank(), 5), chosen.state));
    EXPECT_TRUE(contains(message_of(ErrorKind::checkpoint, [&] { load_checkpoint_of(4, folder_, world); }),
                         "holds no checkpoint of step 4; there are those of 3, 5, 8"));
  });
  for (int again = 0; again < 2; ++again) {
    const std::vector<std::string> aside = set_later_checkpoints_aside(folder_, 5);
    EXPECT_EQ(aside, std::vector<std::string>{folder_ + "/later_step_000000000008"});
    EXPECT_TRUE(fs::exists(manifest_path(aside[0])));
    EXPECT_EQ(load_on(GetParam(), folder_), 5);
    save_on(GetParam(), folder_, 8);
  }
}

}  // namespace
