// SPDX-License-Identifier: MIT
#include "apps/train/run_images.h"

#include <algorithm>

#include "data/image_cache.h"
#include "engine/comm/texts.h"
#include "engine/core/check.h"
#include "engine/core/hash.h"
#include "engine/core/machine.h"
#include "engine/core/say.h"

namespace ab {
namespace {

constexpr const char *kFingerprint = "images", *kContents = "image_contents";

std::int64_t classes_with_images(const Dataset& set) { return set.classes - std::ssize(labels_without_images(set)); }

std::string images_text(const Dataset& set) {
  const std::int64_t classes = classes_with_images(set);
  return fmt::format("{} image{} of {} class{}{}", set.count, set.count == 1 ? "" : "s", classes,
                     classes == 1 ? "" : "es", classes == set.classes ? "" : fmt::format(" (of {})", set.classes));
}

}  // namespace

RunImages::RunImages(const TrainAndTest& data) : fingerprint_(static_cast<std::int64_t>(data.fingerprint())) {
  for (const std::uint64_t hash : data.contents()) contents_.push_back(static_cast<std::int64_t>(hash));
}

void RunImages::save(StateDict& state) const {
  state.put(kFingerprint, fingerprint_);
  state.put(kContents, Tensor::from(contents_, {static_cast<std::int64_t>(contents_.size())}));
}

std::string RunImages::compare(const StateDict& state) const {
  std::size_t different = 0;
  bool same = state.integer(kFingerprint) == fingerprint_;
  if (same) {
    const Tensor saved = state.tensor(kContents);
    same = saved.dtype() == DType::int64 && saved.numel() == static_cast<std::int64_t>(contents_.size());
    for (std::size_t i = 0; same && i < contents_.size(); ++i)
      different += saved.data<std::int64_t>()[i] != contents_[i] ? 1 : 0;
    same = same && 4 * different <= contents_.size();
  }
  AB_CHECK_KIND(data, same, "the checkpoint was saved with other images; give the data set that the run began with");
  if (different == 0) return "";
  return fmt::format("{} of {} image files that were looked at have another size than when the checkpoint was saved",
                     different, contents_.size());
}

TrainAndTest in_cache(const TrainAndTest& data, const TrainConfig& config, Comm* processes) {
  if (!data.train->reads_files()) return data;
  const std::int64_t images = data.train->count + data.test->count;
  const auto bytes = static_cast<std::int64_t>(config.cache_gb * 1e9);
  std::shared_ptr<ImageCache> cache;
  const auto make = [&] {
    if (bytes > 0) cache = std::make_shared<ImageCache>(images, bytes);
  };
  if (!processes) {
    make();
  } else {
    const Ledger of_training = processes->ledger();
    const std::string machine = name_of_machine();
    const std::vector<std::string> machines = gather_texts(*processes, machine);
    const auto first = std::ranges::find(machines, machine) - machines.begin();
    if (first == processes->rank()) make();
    const std::string handle = gather_texts(*processes, cache ? cache->handle() : "")[static_cast<std::size_t>(first)];
    if (first != processes->rank() && !handle.empty()) cache = std::make_shared<ImageCache>(handle);
    processes->ledger() = of_training;
  }
  if (!cache) return data;
  return {std::make_shared<CachedImages>(data.train, cache, 0),
          std::make_shared<CachedImages>(data.test, cache, data.train->count)};
}

void tell_images(const TrainConfig& config, const TrainAndTest& data) {
  for (const auto& set : {data.train, data.test})
    for (const std::string& warning : set->warnings) say(stderr, "warning: {}\n", warning);
  const std::int64_t classes = classes_with_images(*data.train);
  if (config.train_samples > 0 && classes < data.train->classes)
    say(stderr, "warning: --train-samples {} leaves images of {} of {} classes to train on\n", config.train_samples,
        classes, data.train->classes);
  say(stdout, "training on {}, validating on {}\n", images_text(*data.train), images_text(*data.test));
}

void count_images(const TrainAndTest& data, Summary& summary) {
  summary.train_samples = data.train->count;
  summary.train_classes = classes_with_images(*data.train);
  summary.val_classes = classes_with_images(*data.test);
  if (const auto* cached = dynamic_cast<const CachedImages*>(data.train.get())) {
    const ImageCache::Use use = cached->use_of_cache();
    summary.images_cached = use.images, summary.bytes_cached = use.bytes;
    summary.images_from_cache = use.found, summary.images_from_files = use.read;
  }
}

std::uint64_t hash_of_images(const TrainAndTest& data) {
  const std::vector<std::uint64_t> contents = data.contents();
  return hash64(contents.data(), contents.size() * sizeof(std::uint64_t), data.fingerprint());
}

}  // namespace ab
