// SPDX-License-Identifier: MIT
//
// Runs on files of images that are damaged or that the disk does not give: they end with what happened, and without
// losing what was trained.
#include <array>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "apps/plan/plan.h"
#include "apps/train/build_run.h"
#include "apps/train/run_folder.h"
#include "data/decode.h"
#include "engine/comm/comm.h"
#include "tests/error_message.h"
#include "tests/golden/fixtures.h"
#include "tests/program_test.h"

namespace ab {
namespace {

namespace fs = std::filesystem;

class ImageRunTest : public test::ProgramTest {
 protected:
  ImageRunTest() {
    const TensorFile fixtures = golden::read_fixtures("images.safetensors");
    for (const auto& [name, image] : {std::pair("decode/jpeg_444", &image_), std::pair("decode/jpeg_grey", &grey_)})
      for (const double byte : golden::Case(fixtures, name).tensor("file").to_doubles())
        *image += static_cast<char>(static_cast<unsigned char>(byte));
    for (const char* part : {"train", "val"})
      for (const char* name : {"cat/a", "cat/b", "cat/c", "cat/d", "dog/a", "dog/b", "dog/c", "dog/stalled"})
        write(fmt::format("{}/{}.jpg", part, name), image_);
  }

  void write(const std::string& name, const std::string& bytes) const {
    const fs::path file = path("images/" + name);
    fs::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << bytes;
  }

  /// 32 in all.
  void add_training_images() const {
    for (int i = 0; i < 12; ++i)
      for (const char* folder : {"cat", "dog"}) write(fmt::format("train/{}/x{}.jpg", folder, i), image_);
  }

  /// Six steps, three epochs of two ranks, and a validation.
  std::string train(const std::string& out, const std::string& more = "",
                    const std::string& length = "--batch-size 2 --steps 6") const {
    return fmt::format(
        "train --model mlp --width 0.05 --image-size 8 --dataset imagenet --data-dir {} {} --eval-every 0 --lr 0.01 "
        "--timeout-s 4 --out {} {}",
        path("images"), length, path(out), more);
  }

  /// 40 steps, a pass or more over 32 images.
  std::string train_on_32(const std::string& out, const std::string& more) const {
    return train(out, "--overwrite " + more, "--batch-size 1 --steps 40 --seed 7");
  }

  /// Where dog/stalled.jpg cannot be opened; a run that hangs ends with 124 or 137.
  static std::string stalled_disk() {
    return "timeout -k 1 30 env ASAN_OPTIONS=$ASAN_OPTIONS:verify_asan_link_order=0 LD_PRELOAD=" AB_STALLED_FILES;
  }

  std::string contents(const std::string& file) const { return read_file(path(file), ErrorKind::data); }

  std::string image_, grey_;
};

TEST_F(ImageRunTest, RecipesForImageNetArePlannedAndTrained) {
  for (const char* recipe : {"resnet50_imagenet", "vit_b16_imagenet"}) {
    const std::string config = fmt::format("--config {}/apps/configs/{}.toml ", AB_SOURCE_DIR, recipe);
    EXPECT_TRUE(test::contains(run("plan " + config + "--device cuda").out, " epochs of "));
    const test::Outcome outcome =
        run("train " + config +
            fmt::format("--data-dir {} --out {} --ranks 2 --ranks-per-node 1 --batch-size 2 --steps 40 --eval-every 0 "
                        "--warmup-epochs 0 --lr 0.001 --width 0.25 --image-size 32 --precision bf16",
                        path("images"), path(recipe)));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  }
}

TEST_F(ImageRunTest, ImagesAreFramedAsTheRunSaysAndAsTheModelFileRemembers) {
  for (const char* part : {"train", "val"})  // unlike those of cats
    for (const char* name : {"a", "b", "c", "stalled"}) write(fmt::format("{}/dog/{}.jpg", part, name), grey_);
  const test::Outcome outcome = run(train("framed", "--interpolation bicubic --resize 36 --min-crop 0.5"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string told = fmt::format("loss {:.4f} ", read_run(path("framed")).summary.final_val_loss);
  const std::string eval = "eval --model-file " + path("framed") + " --data-dir " + path("images");
  EXPECT_TRUE(test::contains(run(eval).out, told)) << "the model file says how";
  EXPECT_FALSE(test::contains(run(eval + " --interpolation bilinear").out, told));
  EXPECT_FALSE(test::contains(run(eval + " --resize 60").out, told));
  ASSERT_EQ(run(train("other", "--interpolation bicubic --resize 36 --min-crop 1")).exit_code, 0);
  EXPECT_NE(contents("framed/model.safetensors"), contents("other/model.safetensors")) << "other crops";
  ASSERT_EQ(run(train("exact")).exit_code, 0);
  ASSERT_EQ(run(train("fast", "--decode fast --cache-disk " + path("disk"))).exit_code, 0);
  EXPECT_NE(contents("fast/model.safetensors"), contents("exact/model.safetensors")) << "other pixels";
  EXPECT_TRUE(test::contains(contents("fast/config.toml"), "decode = \"fast\""));
  expect_failure(train("small", "--resize 7"), 2, "--resize 7 is less than the");
  const std::string larger_at_first = "--image-sizes 16,1 --resize 12";
  EXPECT_EQ(run("plan --model resnet20 --dataset imagenet --image-size 8 " + larger_at_first).exit_code, 0) << "crops";
  expect_failure(train("framed_larger", larger_at_first + " --shift 2"), 2, "--resize 12 is less than the 16 pixels");
}

TEST_F(ImageRunTest, APlanSaysThatItReadsNoImages) {
  const std::string plan = fmt::format("plan --model resnet20 --dataset imagenet --data-dir {}", path("images"));
  EXPECT_TRUE(test::contains(run(plan).err, "takes 1281167 images to train on, 50000 others and 1000 classes"));
  EXPECT_EQ(run(plan + " --train-samples 200 --classes 2").err, "");
}

TEST_F(ImageRunTest, ShardsMayBeMoreThanTheFilesThatAShellGives) {
  const std::string archive = fmt::format(
      "cd {} && for i in $(seq 100 160); do tar -cf train-$i.tar train; done && rm -r train", path("images"));
  ASSERT_EQ(run_command(archive).exit_code, 0);
  const test::Outcome outcome = run(train("shards"), R"(bash -c 'ulimit -S -n 40; exec "$0" "$@"')");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
}

TEST_F(ImageRunTest, EpochsHaveTheSizesOfARecipe) {
  const auto command = [&](const char* out) {
    return fmt::format(
        "train --model resnet20 --width 0.25 --dataset imagenet --data-dir {} --batch-size 2 --epochs 3 --eval-every 0 "
        "--lr 0.01 --image-size 16 --out {} ",
        path("images"), path(out));
  };
  const test::Outcome outcome = run(command("sizes") + "--image-sizes 8,1,12,1");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  ASSERT_EQ(run(command("one_size")).exit_code, 0);
  EXPECT_NE(contents("sizes/model.safetensors"), contents("one_size/model.safetensors"));
  const std::string told = fmt::format("loss {:.4f} ", read_run(path("sizes")).summary.final_val_loss);
  EXPECT_TRUE(test::contains(run("eval --model-file " + path("sizes") + " --data-dir " + path("images")).out, told));
  expect_failure(train("other", "--image-sizes 4,1"), 2, "those of mlp differ between 4 and 8 pixels");
  expect_failure("plan --dataset imagenet --model vit_b_16 --image-sizes 96,1", 2, "those of vit_b_16 differ");
}

TEST_F(ImageRunTest, ImagesAreCountedAndSoAreFilesThatAreLeftOut) {
  for (const char* name : {"train/cat/e.webp", "train/dog/f", "train/dog/g/h.jpg", "val/cat/e.bmp"})
    write(name, image_);
  const test::Outcome outcome = run(train("run", "--ranks 2"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(test::contains(outcome.out, "training on 8 images of 2 classes, validating on 8 images of 2 classes\n"));
  const std::size_t first = outcome.err.find("warning: imagenet: 3 files in '");
  ASSERT_NE(first, std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find("warning: imagenet: 3 files", first + 1), std::string::npos) << "once for all ranks";
  EXPECT_TRUE(test::contains(outcome.err, "val' is left out: 1 of another format than JPEG and PNG ('cat/e.bmp')"));
  const Summary summary = read_run(path("run")).summary;
  EXPECT_EQ(summary.train_samples, 8);
  EXPECT_EQ(summary.train_classes, 2);
  EXPECT_EQ(summary.val_samples, 8);
  EXPECT_EQ(summary.val_classes, 2);
  const test::Outcome evaluated = run("eval --model-file " + path("run"));
  EXPECT_TRUE(test::contains(evaluated.err, "val' is left out: 1 of")) << "and of train nothing";
  EXPECT_EQ(evaluated.err.find("3 files"), std::string::npos) << evaluated.err;

  const test::Outcome one = run(train("one", "--train-samples 2 --val-samples 1"));
  EXPECT_TRUE(test::contains(one.out, "training on 2 images of 2 classes, validating on 1 image of 1 class (of 2)"));
  std::string words = train("cut", "--train-samples 1");
  const test::Outcome cut = run(words.replace(words.find("--batch-size 2"), 14, "--batch-size 1"));
  EXPECT_TRUE(test::contains(cut.err, "warning: --train-samples 1 leaves images of 1 of 2 classes to train on"));
}

// Whoever looked before the first rank would not find them.
TEST_F(ImageRunTest, ProcessesLookForImagesAfterTheFirst) {
  TrainConfig config;
  config.dataset = "imagenet", config.data_dir = path("images");
  fs::rename(path("images"), path("away"));
  const CommOptions options{.timeout = std::chrono::seconds(20)};
  std::array<std::int64_t, 3> found{};
  run_thread_ranks(3, options, [&](Comm& world) {
    if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    if (world.rank() == 0) fs::rename(path("away"), path("images"));
    found[static_cast<std::size_t>(world.rank())] = load_data(config, world).train->count;
    EXPECT_TRUE(world.ledger().entries().empty()) << "no bytes of training";
  });
  EXPECT_EQ(found, (std::array<std::int64_t, 3>{8, 8, 8}));
  fs::remove_all(path("images/train"));
  EXPECT_TRUE(test::contains(
      test::message_of(ErrorKind::data,
                       [&] { run_thread_ranks(3, options, [&](Comm& world) { load_data(config, world); }); }),
      "there is no folder '"));
#if defined(AB_MPIEXEC) && !defined(AB_SANITIZED)
  const test::Outcome processes = run(train("run"), AB_MPIEXEC " --oversubscribe --allow-run-as-root -np 2");
  EXPECT_EQ(processes.exit_code, 3);
  EXPECT_TRUE(test::contains(processes.err, "rank 0: imagenet: there is no folder '")) << processes.err;
#endif
}

TEST_F(ImageRunTest, TheShuffleIsASettingOfTheRun) {
  ASSERT_EQ(run(train("full")).exit_code, 0);
  ASSERT_EQ(run(train("blocks", "--shuffle blocks")).exit_code, 0);
  EXPECT_NE(contents("blocks/model.safetensors"), contents("full/model.safetensors"));
  EXPECT_TRUE(test::contains(contents("blocks/config.toml"), "\nshuffle = \"blocks\"\n"));
}

// Three epochs and a validation: what the first epoch and the validation read is all that is read, also where another rank
// reads it again.
TEST_F(ImageRunTest, ImagesStayInMemoryAndChangeNothing) {
  const auto use_of = [&](const std::string& out) {
    const Summary s = read_run(path(out)).summary;
    return std::array{s.images.images, s.images.from_files, s.images.from_memory};
  };
  ASSERT_EQ(run(train("plain", "--ranks 2")).exit_code, 0);
  EXPECT_EQ(use_of("plain"), (std::array<std::int64_t, 3>{}));
  const test::Outcome cached = run(train("cached", "--ranks 2 --cache-gb 0.1 --log-every 1"));
  ASSERT_EQ(cached.exit_code, 0) << cached.err;
  EXPECT_TRUE(test::contains(cached.out,
                             "images on rank 0's machine: 16 from memory, 16 from their files; kept: 16 in memory ("));
  EXPECT_EQ(contents("cached/model.safetensors"), contents("plain/model.safetensors"));
  const std::array<std::int64_t, 3> all{16, 16, 16};
  EXPECT_EQ(use_of("cached"), all);
  std::int64_t of_steps = 0, bytes_of_steps = 0;
  std::ifstream metrics(path("cached/metrics.jsonl"));
  for (std::string line; std::getline(metrics, line);)
    if (const auto json = nlohmann::json::parse(line); json["kind"] == "step") {
      of_steps += json["images_from_files"].get<std::int64_t>();
      bytes_of_steps += json["bytes_from_files"].get<std::int64_t>();
    }
  EXPECT_EQ(of_steps, 8) << "each image of training once";
  EXPECT_EQ(bytes_of_steps, 8 * std::ssize(image_));
#if defined(AB_MPIEXEC) && !defined(AB_SANITIZED)  // which see what the library of MPI keeps at its end
  ASSERT_EQ(
      run(train("processes", "--cache-gb 0.1"), AB_MPIEXEC " --oversubscribe --allow-run-as-root -np 2").exit_code, 0);
  EXPECT_EQ(contents("processes/model.safetensors"), contents("plain/model.safetensors"));
  EXPECT_EQ(use_of("processes"), all);
#endif
  // Two images and a half.
  const std::int64_t bytes = read_run(path("cached")).summary.images.bytes / 16;
  ASSERT_EQ(run(train("small", fmt::format("--ranks 2 --cache-gb {}", 2.5e-9 * static_cast<double>(bytes)))).exit_code,
            0);
  EXPECT_EQ(contents("small/model.safetensors"), contents("plain/model.safetensors"));
  EXPECT_EQ(use_of("small"), (std::array<std::int64_t, 3>{2, 28, 4}));
}

// Of images that are as large as a plan takes them to be; a quarter of them fits.
TEST_F(ImageRunTest, ImagesComeFromWhereThePlanSays) {
  Image photograph;
  photograph.resize(375, 500);
  std::ranges::fill(photograph.pixels, std::uint8_t{90});
  const auto file = encode_jpeg(photograph.view(), 90, "");
  for (const auto& entry : fs::recursive_directory_iterator(path("images")))
    if (entry.is_regular_file())
      std::ofstream(entry.path(), std::ios::binary).write(reinterpret_cast<const char*>(file.data()), std::ssize(file));
  constexpr std::int64_t kImages = 8, kEpochs = 3;
  TrainConfig config;
  config.cache_gb = 2.5e-9 * 375 * 500 * 3;
  const std::string cache = fmt::format("--cache-gb {} ", config.cache_gb);
  const auto expect_planned = [&](const std::string& out, int nodes) {
    const Summary s = read_run(path(out)).summary;
    const ImagePlan plan = plan_images(config, kImages, nodes);
    EXPECT_EQ(nodes * s.images.from_memory, (kEpochs - 1) * static_cast<std::int64_t>(plan.from_memory));
    // Of the first epoch all, and those that are validated on, of which rank 0 has all.
    EXPECT_EQ(nodes * (s.images.from_files - kImages),
              kImages + (kEpochs - 1) * static_cast<std::int64_t>(plan.from_files));
  };
  ASSERT_EQ(run(train("one", cache + "--ranks 2")).exit_code, 0);
  expect_planned("one", 1);
#if defined(AB_MPIEXEC) && !defined(AB_SANITIZED)
  config.cache_share = CacheShare::node;
  ASSERT_EQ(run(train("two", cache + "--cache-share node --ranks-per-node 1"),
                AB_MPIEXEC " --oversubscribe --allow-run-as-root -np 2")
                .exit_code,
            0);
  expect_planned("two", 2);

  // Crops of whole images, all of which fit in two nodes.
  config.cache_share = CacheShare::world;
  config.cache_gb = 4.5e-9 * 375 * 500 * 3;
  config.framing.min_area = 1;
  ASSERT_EQ(run(train("world", fmt::format("--cache-gb {} --min-crop 1 --ranks-per-node 1", config.cache_gb)),
                AB_MPIEXEC " --oversubscribe --allow-run-as-root -np 2")
                .exit_code,
            0);
  const Summary s = read_run(path("world")).summary;
  const ImagePlan plan = plan_images(config, kImages, 2);
  EXPECT_EQ(plan.from_memory + plan.from_nodes, kImages);
  EXPECT_GT(s.images.from_nodes, 0);
  EXPECT_EQ(s.images.bytes_from_nodes, s.images.from_nodes * 375 * 500 * 3);
  EXPECT_NEAR(plan.bytes_from_nodes, plan.from_nodes * 375 * 500 * 3, 1e-4 * plan.bytes_from_nodes)
      << "of ten thousand crops a few have a column less";
#endif
}

TEST_F(ImageRunTest, TheNextJobFindsCopiesOnTheDisk) {
  ASSERT_EQ(run(train("plain")).exit_code, 0);
  const std::string cache = "--cache-disk " + path("disk");
  const test::Outcome first = run(train("first", cache));
  EXPECT_TRUE(test::contains(first.out, "from the disk, 16 from their files; kept: 16 on the disk (")) << first.out;
  const test::Outcome second = run(train("second", cache));
  EXPECT_FALSE(test::contains(second.out, "from their files")) << second.out;
  for (const char* out : {"first", "second"})
    EXPECT_EQ(contents(fmt::format("{}/model.safetensors", out)), contents("plain/model.safetensors"));
  expect_failure(train("off", "--cache-disk-gb 3"), 2, "--cache-disk-gb");
}

#if defined(AB_MPIEXEC) && !defined(AB_SANITIZED)
TEST_F(ImageRunTest, NodesShareWhatTheyKeepOrHaveTheirOwnImages) {
  const std::string two_nodes = AB_MPIEXEC " --oversubscribe --allow-run-as-root -np 2";
  ASSERT_EQ(run(train("plain", "--ranks 2")).exit_code, 0);
  const auto use_of = [&](const std::string& out) {
    const Summary s = read_run(path(out)).summary;
    return std::array{s.images.images, s.images.from_memory + s.images.from_nodes, s.images.from_files};
  };
  const auto train_apart = [&](const std::string& out, const std::string& more, const std::string& launcher) {
    const test::Outcome outcome = run(train(out, "--ranks-per-node 1 --cache-gb 0.1 " + more), launcher);
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  };
  train_apart("world", "", two_nodes);
  EXPECT_EQ(contents("world/model.safetensors"), contents("plain/model.safetensors"));
  const Summary shared = read_run(path("world")).summary;
  EXPECT_EQ(shared.images.images, 12) << "half of those of training, and all that rank 0 validates on";
  EXPECT_GT(shared.images.from_nodes, 0);
  EXPECT_LT(shared.images.bytes_from_nodes, shared.images.from_nodes * shared.images.bytes / 12) << "crops";

  train_apart("node", "--cache-share node", two_nodes);
  EXPECT_EQ(use_of("node"), (std::array<std::int64_t, 3>{12, 8, 12}))
      << "in training 4 came from files and 8 times from memory";
  EXPECT_EQ(read_run(path("node")).summary.images.from_nodes, 0);
  EXPECT_NE(contents("node/model.safetensors"), contents("plain/model.safetensors"));
  train_apart("node_threads", "--cache-share node --ranks 2", "");
  EXPECT_EQ(contents("node_threads/model.safetensors"), contents("node/model.safetensors"));

  train_apart("off", "--cache-share off", two_nodes);
  EXPECT_EQ(contents("off/model.safetensors"), contents("plain/model.safetensors"));
  EXPECT_EQ(read_run(path("off")).summary.images.from_nodes, 0);
}
#endif

TEST_F(ImageRunTest, ADamagedImageInTheLastValidationCostsNoTraining) {
  ASSERT_EQ(run(train("whole", "--ranks 2")).exit_code, 0);
  EXPECT_FALSE(fs::exists(path("whole/checkpoints")));
  write("val/dog/c.jpg", image_.substr(0, image_.size() / 2));
  expect_failure(train("part", "--ranks 2"), 3, "val/dog/c.jpg");
  EXPECT_TRUE(fs::exists(path("part/checkpoints/step_000000000006/manifest.json")));
  EXPECT_FALSE(fs::exists(path("part/model.safetensors")));
  write("val/dog/c.jpg", image_);
  expect_failure(train("part", "--ranks 2"), 2, "; go on with --resume " + path("part") + ", choose another folder");
  const test::Outcome resumed = run("train --resume " + path("part"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_TRUE(test::contains(resumed.out, "resuming at step 6 "));
  EXPECT_EQ(contents("part/model.safetensors"), contents("whole/model.safetensors"));
  EXPECT_EQ(read_run(path("part")).summary.wire_bytes_by_rank, read_run(path("whole")).summary.wire_bytes_by_rank);
  EXPECT_FALSE(fs::exists(path("part/checkpoints")));
}

// The first epoch ends after two steps; nothing has been saved by then.
TEST_F(ImageRunTest, ADamagedImageInAnyValidationCostsNoTraining) {
  const auto train_with_validations = [&](const std::string& out) {
    std::string words = train(out, "--ranks 2 --method local --ema-decay 0.5");
    return words.replace(words.find("--eval-every 0"), 14, "--eval-every 1");
  };
  ASSERT_EQ(run(train_with_validations("whole")).exit_code, 0);
  write("val/dog/c.jpg", image_.substr(0, image_.size() / 2));
  const test::Outcome ended = run(train_with_validations("part"));
  EXPECT_EQ(ended.exit_code, 3) << ended.err;
  EXPECT_TRUE(test::contains(ended.err, "val/dog/c.jpg"));
  EXPECT_TRUE(test::contains(ended.err, "step 2 is saved: go on with --resume when that is mended"));
  write("val/dog/c.jpg", image_);
  const test::Outcome resumed = run("train --resume " + path("part"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_TRUE(test::contains(resumed.out, "resuming at step 2 "));
  EXPECT_EQ(contents("part/model.safetensors"), contents("whole/model.safetensors"));
  EXPECT_EQ(read_run(path("part")).summary.wire_bytes_by_rank, read_run(path("whole")).summary.wire_bytes_by_rank);
}

// One file may have been mended, as above; a set that was scaled anew is another.
// The image is met in the first epoch, when nothing has been saved; the run goes on as if it had always been whole.
TEST_F(ImageRunTest, ADamagedTrainingImageCostsNoTraining) {
  add_training_images();
  for (const char* how : {"", "--accumulate 3", "--ranks 2", "--ranks 2 --accumulate 2", "--ranks 2 --method local",
                          "--ranks 4 --method ab --ab.first-split 2 --ab.cycle-steps 4 "
                          "--ab.full-rank-steps 1 --ab.ratio 0.5"}) {
    write("train/dog/x7.jpg", image_);
    ASSERT_EQ(run(train_on_32("whole", how)).exit_code, 0) << how;
    write("train/dog/x7.jpg", image_.substr(0, image_.size() / 2));
    const test::Outcome failed = run(train_on_32("part", how));
    EXPECT_EQ(failed.exit_code, 3) << how;
    EXPECT_TRUE(test::contains(failed.err, "train/dog/x7.jpg")) << failed.err;
    EXPECT_TRUE(test::contains(failed.err, " is saved: go on with --resume when that is mended")) << how << failed.err;
    write("train/dog/x7.jpg", image_);
    const test::Outcome resumed = run("train --resume " + path("part"));
    ASSERT_EQ(resumed.exit_code, 0) << how << resumed.err;
    EXPECT_EQ(contents("part/model.safetensors"), contents("whole/model.safetensors")) << how;
    EXPECT_EQ(read_run(path("part")).summary.wire_bytes_by_rank, read_run(path("whole")).summary.wire_bytes_by_rank);
  }
}

// Of two ranks, the first validates on all eight images in one batch, or on the four of cats in batches of four.
TEST_F(ImageRunTest, BadImagesAreSkippedAndCounted) {
  add_training_images();
  const std::string half = image_.substr(0, image_.size() / 2);
  const std::vector<std::string> bad{"train/cat/x1.jpg", "val/cat/b.jpg", "val/dog/c.jpg"};
  for (const std::string& name : bad) write(name, half);
  const test::Outcome outcome = run(train_on_32("run", "--ranks 2 --on-bad-image skip --ema-decay 0.5 --val-views"));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_TRUE(test::contains(outcome.err, "  6 of 8 images; 2 could not be read\n")) << outcome.err;
  EXPECT_TRUE(test::contains(outcome.out, "went on without 3 bad images, which summary.json names\n")) << outcome.out;
  const Summary summary = read_run(path("run")).summary;
  EXPECT_EQ(summary.val_samples, 6);
  EXPECT_EQ(summary.bad_images, 3);
  ASSERT_EQ(summary.bad_image_names.size(), bad.size());
  for (std::size_t i = 0; i < bad.size(); ++i) {
    EXPECT_TRUE(summary.bad_image_names[i].ends_with("/images/" + bad[i])) << summary.bad_image_names[i];
    const std::size_t told = outcome.err.find(bad[i]);
    EXPECT_EQ(outcome.err.find(bad[i], told + 1), std::string::npos) << "the ranks meet it in turn: " << outcome.err;
  }

  for (const char* name : {"a", "b", "c", "d"}) write(fmt::format("val/cat/{}.jpg", name), half);
#ifndef AB_SANITIZED  // under which it takes a minute
  const test::Outcome large = run(fmt::format(
      "train --model resnet20 --width 0.0625 --image-size 1024 --dataset imagenet --data-dir {} --ranks 2 --batch-size 1 "
      "--steps 1 --lr 0.001 --on-bad-image skip --out {}",
      path("images"), path("large")));
  ASSERT_EQ(large.exit_code, 0) << large.err;
  EXPECT_EQ(read_run(path("large")).summary.val_samples, 3) << "the first rank has none left";
#endif

  for (const char* name : {"a", "b", "stalled"}) write(fmt::format("val/dog/{}.jpg", name), half);
  const test::Outcome none = run(train_on_32("none", "--ranks 2 --on-bad-image skip"));
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_TRUE(test::contains(none.err, "none of the 8 images to evaluate on could be read")) << none.err;
  EXPECT_TRUE(fs::exists(path("none/checkpoints/step_000000000040/manifest.json")));
}

TEST_F(ImageRunTest, MoreBadImagesThanAllowedEndAllRanks) {
  add_training_images();
  const std::string half = image_.substr(0, image_.size() / 2);
  const auto ended = [&](const std::string& how) {
    const test::Outcome outcome = run(train_on_32("run", "--on-bad-image skip " + how));
    EXPECT_EQ(outcome.exit_code, 3) << how << outcome.err;
    EXPECT_TRUE(test::contains(outcome.err, " is saved: go on with --resume when that is mended")) << outcome.err;
    return outcome.err;
  };
  write("train/dog/x7.jpg", half);
  EXPECT_TRUE(test::contains(ended("--max-bad-images 0"), "abtrain: 1 image could not be read or decoded, "));
  write("train/cat/x4.jpg", half);
  const std::string of_one = ended("--ranks 2 --max-bad-images 1");
  EXPECT_TRUE(test::contains(of_one, "abtrain: rank 0: 2 images could not be read")) << "both are its own: " << of_one;
  EXPECT_TRUE(test::contains(of_one, "train/dog/x7.jpg among them, and --max-bad-images allows 1; step ")) << of_one;
  write("train/cat/x4.jpg", image_);
  ASSERT_EQ(run("train --resume " + path("run")).exit_code, 0) << "one is allowed";
  write("train/cat/x1.jpg", half);
  const std::string of_both = ended("--ranks 2 --max-bad-images 1");
  EXPECT_TRUE(test::contains(of_both, "abtrain: 2 images could not be read")) << "each has met one: " << of_both;
  EXPECT_TRUE(test::contains(of_both, "; step 16 is saved")) << "at the end of an epoch: " << of_both;
  write("train/cat/x1.jpg", image_);
  write("val/dog/d.jpg", half);
  EXPECT_TRUE(test::contains(ended("--ranks 2 --max-bad-images 1"), "; step 40 is saved")) << "in the validation";
}

TEST_F(ImageRunTest, ARunKeepsItsRuleForBadImages) {
  ASSERT_EQ(run(train("run", "--save-every 3 --ranks 2 --on-bad-image skip")).exit_code, 0);
  fs::remove(path("run/summary.json"));
  write("val/dog/c.jpg", image_.substr(0, image_.size() / 2));
  const test::Outcome failed = run("train --on-bad-image fail --resume " + path("run"));
  EXPECT_EQ(failed.exit_code, 3) << failed.err;
  EXPECT_TRUE(test::contains(failed.err, "val/dog/c.jpg: ")) << failed.err;
  EXPECT_TRUE(test::contains(contents("run/config.toml"), "on_bad_image = \"fail\"\n")) << "it keeps the change";
  const test::Outcome resumed = run("train --on-bad-image skip --resume " + path("run"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_TRUE(test::contains(resumed.err, "  7 of 8 images; 1 could not be read\n")) << resumed.err;
  EXPECT_TRUE(test::contains(contents("run/config.toml"), "on_bad_image = \"skip\"\n"));
}

TEST_F(ImageRunTest, ATrainingImageThatIsNeverReadCostsNoTraining) {
  add_training_images();
  for (const int ranks : {1, 2}) {
    const std::string threads = fmt::format("--ranks {}", ranks);
    ASSERT_EQ(run(train_on_32("whole", threads)).exit_code, 0);
    const test::Outcome stopped = run(train_on_32("part", threads), stalled_disk());
    EXPECT_EQ(stopped.exit_code, 3) << stopped.err;
    EXPECT_TRUE(test::contains(stopped.err, " is saved: go on with --resume")) << stopped.err;
    ASSERT_EQ(run("train --resume " + path("part")).exit_code, 0);
    EXPECT_EQ(contents("part/model.safetensors"), contents("whole/model.safetensors")) << ranks;
  }
}

TEST_F(ImageRunTest, AStaleHandleIsAskedForAgainAndThenNamed) {
  fs::remove(path("images/train/dog/stalled.jpg")), fs::remove(path("images/val/dog/stalled.jpg"));
  write("train/dog/moved.jpg", image_), write("val/dog/e.jpg", image_);
  ASSERT_EQ(run(train("whole", "--ranks 2")).exit_code, 0);
  const test::Outcome moved = run(train("moved", "--ranks 2"), stalled_disk());
  EXPECT_EQ(moved.exit_code, 0) << moved.err;
  EXPECT_EQ(contents("moved/model.safetensors"), contents("whole/model.safetensors"));
  fs::rename(path("images/train/dog/moved.jpg"), path("images/train/dog/stale.jpg"));
  const test::Outcome stale = run(train("stale", "--ranks 2"), stalled_disk());
  EXPECT_EQ(stale.exit_code, 3) << stale.err;
  EXPECT_TRUE(test::contains(stale.err, "train/dog/stale.jpg': Stale file handle")) << stale.err;
}

// With one step in an epoch, each is agreed on before it is trained.
TEST_F(ImageRunTest, AStopBetweenEpochsCountsNothingTwice) {
  add_training_images();
  const std::string length = "--batch-size 16 --epochs 300 --log-every 1";
  ASSERT_EQ(run(train("whole", "--ranks 2", length)).exit_code, 0);
  const std::string stopped_soon =
      fmt::format("sh -c '\"$@\" & p=$!; while ! test -s {}/metrics.jsonl; do sleep 0.01; done; kill $p; wait $p' sh",
                  path("part"));
  ASSERT_EQ(run(train("part", "--ranks 2", length), stopped_soon).exit_code, 75);
  ASSERT_EQ(run("train --resume " + path("part")).exit_code, 0);
  EXPECT_EQ(contents("part/model.safetensors"), contents("whole/model.safetensors"));
  EXPECT_EQ(read_run(path("part")).summary.wire_bytes_per_rank_by_phase,
            read_run(path("whole")).summary.wire_bytes_per_rank_by_phase);
}

// A disk that hangs keeps a run neither from being told to stop nor from what it has trained.
TEST_F(ImageRunTest, AStopIsHeardWhileAReadHangs) {
  add_training_images();
  ASSERT_EQ(run(train("whole", "--seed 7", "--batch-size 1 --steps 40")).exit_code, 0);
  const std::string stopped = fmt::format(
      "sh -c '\"$@\" & p=$!; while ! test -s {}/metrics.jsonl; do sleep 0.01; done; sleep 0.5; kill $p; wait $p' sh timeout -k 9 30 "
      "env ASAN_OPTIONS=$ASAN_OPTIONS:verify_asan_link_order=0 LD_PRELOAD=" AB_STALLED_FILES,
      path("part"));
  const std::string patient =
      "train --model mlp --width 0.05 --image-size 8 --dataset imagenet --data-dir " + path("images") +
      " --batch-size 1 --steps 40 --eval-every 0 --lr 0.01 --log-every 1 --seed 7 --out " + path("part");
  ASSERT_EQ(run(patient, stopped).exit_code, 75) << read_file(path("stderr"), ErrorKind::data);
  ASSERT_EQ(run("train --resume " + path("part")).exit_code, 0);
  EXPECT_EQ(contents("part/model.safetensors"), contents("whole/model.safetensors"));
}

TEST_F(ImageRunTest, OtherFilesOfTheSameNamesAreRefused) {
  ASSERT_EQ(run(train("run", "--save-every 3 --ranks 2")).exit_code, 0);
  fs::remove(path("run/summary.json"));
  for (const char* name : {"cat/a", "cat/b", "dog/a", "dog/b", "dog/c"})
    write(fmt::format("train/{}.jpg", name), image_ + "more");
  expect_failure("train --resume " + path("run"), 3, "saved with other images");
  write("train/cat/a.jpg", image_);
  const test::Outcome resumed = run("train --resume " + path("run"));
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_TRUE(test::contains(resumed.err, "4 of 16 image files that were looked at have another size"));
}

TEST_F(ImageRunTest, AReadThatNeverReturnsEndsAllRanks) {
  for (const int ranks : {1, 2}) {
    const test::Outcome outcome = run(train("run", fmt::format("--overwrite --ranks {}", ranks)), stalled_disk());
    EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
    EXPECT_TRUE(test::contains(outcome.err, "have delivered nothing for 2 s")) << ranks;
  }
}

TEST_F(ImageRunTest, AReadThatNeverReturnsInTheLastValidationCostsNoTraining) {
  ASSERT_EQ(run(train("whole")).exit_code, 0);
  fs::rename(path("images/train/dog/stalled.jpg"), path("images/train/dog/d.jpg"));
  const test::Outcome stopped = run(train("part"), stalled_disk());
  EXPECT_EQ(stopped.exit_code, 3) << stopped.err;
  const test::Outcome resumed = run("train --resume " + path("part"));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_TRUE(test::contains(resumed.out, "resuming at step 6 "));
  EXPECT_EQ(contents("part/model.safetensors"), contents("whole/model.safetensors"));
}

#ifdef AB_MPIEXEC
TEST_F(ImageRunTest, AReadThatNeverReturnsEndsAllProcesses) {
  const test::Outcome outcome =
      run(train("run"), stalled_disk() + " " AB_MPIEXEC " --oversubscribe --allow-run-as-root -np 2");
  EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
  EXPECT_TRUE(test::contains(outcome.err, "have delivered nothing for 2 s"));
}
#endif

}  // namespace
}  // namespace ab
