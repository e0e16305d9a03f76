// SPDX-License-Identifier: MIT
#include "apps/commands/commands.h"

#include <CLI/CLI.hpp>
#include <atomic>
#include <cmath>
#include <map>
#include <mutex>

#include "apps/report/progress.h"
#include "apps/report/terminal.h"
#include "apps/train/train_record.h"
#include "data/archive_index.h"
#include "data/datasets.h"
#include "data/image_files.h"
#include "data/loader.h"
#include "data/pack.h"
#include "engine/core/atomic_file.h"
#include "engine/core/check.h"
#include "engine/core/path.h"
#include "engine/core/say.h"
#include "engine/core/threads.h"

namespace ab {
namespace {

TrainAndTest images_in(const std::string& folder) {
  const TrainAndTest images = load_imagenet(folder);
  for (const auto& set : {images.train, images.test})
    for (const std::string& warning : set->warnings) say(stderr, "warning: {}\n", warning);
  return images;
}

void check_outside(const std::string& to, const std::filesystem::path& images) {
  using std::filesystem::weakly_canonical;
  const std::filesystem::path within = weakly_canonical(to).lexically_relative(weakly_canonical(images));
  AB_CHECK(within.empty() || *within.begin() == "..",
           "{} lies in {}, whose folders are classes of images; give a folder outside", to, images.string());
}

int pack(const std::string& from, const std::string& to, const PackOptions& options) {
  const Stopwatch watch;
  for (const char* part : {"train", "val"}) check_outside(to, std::filesystem::path(from) / part);
  const TrainAndTest source = images_in(from);
  PackedBytes bytes;
  {
    Progress progress;
    bytes =
        pack_images(source, to, options, [&](std::int64_t done, std::int64_t total) { progress.images(done, total); });
  }
  print_text(fmt::format("{}: {} of train, {} of val, {} from {}, in {}\n", to, counted(source.train->count, "image"),
                         source.test->count, human_bytes(static_cast<double>(bytes.packed)),
                         human_bytes(static_cast<double>(bytes.source)), human_seconds(watch.seconds())));
  return 0;
}

int verify(const std::string& folder, int threads) {
  const TrainAndTest data = images_in(folder);
  const std::int64_t total = data.train->count + data.test->count;
  std::atomic<std::int64_t> done = 0;
  std::map<std::int64_t, std::string> bad;  // images, in their order
  std::mutex mutex;
  {
    Progress progress;
    for_each_in_threads(total, threads, [&](std::int64_t i) {
      thread_local Image image;
      try {
        if (i < data.train->count) data.train->read(i, image);
        else data.test->read(i - data.train->count, image);
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        bad[i] = error.what();
      }
      progress.images(++done, total);
    });
  }
  for (const auto& [i, reason] : bad) print_text(reason + "\n");
  print_text(fmt::format("{} of train, {} of val: {} bad\n", counted(data.train->count, "image"), data.test->count,
                         bad.size()));
  return bad.empty() ? 0 : static_cast<int>(ErrorKind::data);
}

int index(const std::string& folder, int threads) {
  std::vector<std::string> archives = archives_of(folder, "train");
  for (const std::string& archive : archives_of(folder, "val")) archives.push_back(archive);
  AB_CHECK_KIND(data, !archives.empty(), "{} holds no archives, such as train.tar; only these have an index", folder);
  std::atomic<std::int64_t> written = 0;
  for_each_in_threads(std::ssize(archives), threads, [&](std::int64_t i) {
    const TarArchive archive(archives[static_cast<std::size_t>(i)]);
    std::string problem;
    if (read_archive_index(archive.path(), archive.bytes(), problem)) return;
    write_file_atomically(index_path(archive.path()), make_archive_index(archive));
    ++written;
  });
  print_text(
      fmt::format("{}: {} of {} got a new index\n", folder, written.load(), counted(std::ssize(archives), "archive")));
  return 0;
}

/// Images a second that training would get of so many threads, over at most `seconds`.
double images_per_second(const Dataset& set, int threads, double seconds) {
  constexpr std::int64_t most_in_a_batch = 64;
  Loader loader(set, {.batch_size = std::min(most_in_a_batch, set.count), .threads = threads});
  std::int64_t images = 0;
  const Stopwatch watch;
  for (std::int64_t epoch = 0; watch.seconds() < seconds; ++epoch) {
    loader.start_epoch(epoch);
    while (const auto batch = watch.seconds() < seconds ? loader.next() : std::nullopt) images += batch->count();
  }
  return static_cast<double>(images) / watch.seconds();
}

int bench(const std::string& folder, int threads) {
  constexpr double warm_up_seconds = 1, seconds = 3;
  constexpr double usual_rates[] = {2500, 10000};  // ResNet-50 on one A100, and on four
  const TrainAndTest data = images_in(folder);
  images_per_second(*data.train, threads, warm_up_seconds);
  const double of_all = images_per_second(*data.train, threads, seconds), of_one = of_all / threads;
  print_text(fmt::format("{:.0f} images/s by {}: read, decoded, cropped to {} pixels, flipped, normalised\n", of_all,
                         counted(threads, "thread"), data.train->height));
  for (const double rate : usual_rates)
    print_text(fmt::format("{:.0f} images/s take {} such threads\n", rate, std::ceil(rate / of_one)));
  return 0;
}

/// `folders`: FROM and TO of pack, else one.
int run_data(const std::string& action, const std::vector<std::string>& folders, PackOptions options) {
  const bool packs = action == "pack";
  AB_CHECK(folders.size() == (packs ? 2u : 1u), "abtrain data {}",
           packs ? "pack takes two folders: FROM, which has the images, and TO"
                 : action + " takes one folder: that of train and val");
  AB_CHECK(packs || options.side == 0, "--side is a flag of abtrain data pack alone");
  set_compute_threads(options.threads);
  options.threads = compute_threads();
  if (packs) return pack(folders[0], folders[1], options);
  if (action == "bench") return bench(folders[0], options.threads);
  return action == "verify" ? verify(folders[0], options.threads) : index(folders[0], options.threads);
}

}  // namespace

Command data_command(CLI::App& app) {
  CLI::App* parser = app.add_subcommand("data", "pack, check, index or time the images of ImageNet");
  const auto action = std::make_shared<std::string>();
  const auto folders = std::make_shared<std::vector<std::string>>();
  const auto options = std::make_shared<PackOptions>(PackOptions{.threads = 0});
  parser
      ->add_option(
          "ACTION", *action,
          "pack FROM TO: write the images of FROM to archives in TO; verify DIR: decode every image; index DIR: "
          "write the indexes that archives lack; bench DIR: tell how many images a second training would get")
      ->required()
      ->check(CLI::IsMember({"pack", "verify", "index", "bench"}));
  parser->add_option("folders", *folders, "FROM and TO, or DIR: folders of train and val")
      ->required()
      ->transform(expand_home);
  CLI::Option* side =
      parser
          ->add_option("--side", options->side,
                       "pack images with a shorter side of at most so many pixels; without it pixels stay as they are")
          ->check(CLI::Range(1, 65500));
  parser->add_option("--quality", options->quality, "of scaled images as JPEG (default 90)")
      ->check(CLI::Range(1, 100))
      ->needs(side);
  parser->add_option("--threads", options->threads, "0: all cores")->check(CLI::Range(0, 1024));
  return {parser, [=] { return run_data(*action, *folders, *options); }};
}

}  // namespace ab
