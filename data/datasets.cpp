// SPDX-License-Identifier: MIT
#include "data/datasets.h"

#include <fmt/format.h>

#include <cstdlib>

#include "engine/core/check.h"
#include "engine/core/path.h"

namespace ab {
namespace {

TrainAndTest in_memory(ImageSets sets, std::int64_t train_images, std::int64_t test_images) {
  return {std::make_shared<ImageSet>(first_images(std::move(sets.train), train_images)),
          std::make_shared<ImageSet>(first_images(std::move(sets.test), test_images))};
}

/// Data sets that train without any files.
std::string without_files() {
  std::vector<std::string> names;
  for (const DatasetEntry& dataset : datasets())
    if (!dataset.needs_folder) names.push_back(dataset.name);
  return fmt::format("{}", fmt::join(names, " or "));
}

}  // namespace

const std::vector<DatasetEntry>& datasets() {
  using S = const std::string&;
  using N = std::int64_t;
  const auto cifar10 = [](S folder, N train, N test, bool) { return in_memory(load_cifar10(folder), train, test); };
  const auto cifar100 = [](S folder, N train, N test, bool) { return in_memory(load_cifar100(folder), train, test); };
  const auto synthetic = [](S cache, N train, N test, bool) {
    return in_memory(load_cifar10(ensure_synthetic_cifar10({}, cache)), train, test);
  };
  static const std::vector<DatasetEntry> all{
      {"cifar10", {50000, 10000, 10, 32}, cifar10, true, "ABTRAIN_DATA_DIR"},
      {"cifar100", {50000, 10000, 100, 32}, cifar100},
      {"imagenet", {1281167, 50000, 1000, 224}, load_imagenet, true, nullptr, true},
      {"synthetic", {50000, 10000, 10, 32}, synthetic, false},
  };
  return all;
}

std::vector<std::string> dataset_names() {
  std::vector<std::string> names;
  for (const DatasetEntry& dataset : datasets()) names.push_back(dataset.name);
  return names;
}

const DatasetEntry& find_dataset(const std::string& name) {
  for (const DatasetEntry& dataset : datasets())
    if (name == dataset.name) return dataset;
  throw Error(ErrorKind::config,
              fmt::format("there is no data set '{}'; choose {}", name, fmt::join(dataset_names(), ", ")));
}

std::string known_folder_of(const DatasetEntry& dataset, const std::string& folder) {
  const char* named = dataset.variable ? std::getenv(dataset.variable) : nullptr;
  return folder.empty() && named ? expand_home(named) : folder;
}

std::string folder_of(const DatasetEntry& dataset, const std::string& folder) {
  const std::string found = known_folder_of(dataset, folder);
  AB_CHECK(!found.empty() || !dataset.needs_folder,
           "dataset {} needs --data-dir{}; --dataset {} works without any files", dataset.name,
           dataset.variable ? fmt::format(" or the environment variable {}", dataset.variable) : std::string(),
           without_files());
  return found;
}

}  // namespace ab
