#pragma once
// SPDX-License-Identifier: MIT
//
// The data sets of the program. A new one is two files that load it and one row in datasets.cpp: --dataset, the sizes
// that a plan needs and the messages about missing files follow.

#include <string>
#include <vector>

#include "data/dataset.h"

namespace ab {

/// The sizes of a data set: images, classes, height and width.
struct DataShape {
  std::int64_t train = 0, test = 0, classes = 0, image_size = 0;
};

struct DatasetEntry {
  const char* name;  ///< --dataset
  DataShape shape;
  /// At most so many images of each part; 0: all. Throws Error(data) that names what is missing or damaged.
  TrainAndTest (*load)(const std::string& folder, std::int64_t train_images, std::int64_t test_images);
  bool needs_folder = true;        ///< of its files; else the folder is a cache, and may be empty
  const char* variable = nullptr;  ///< of the environment, that names the folder when nothing else does
  bool decodes = false;            ///< each image is a file that a core decodes when it is needed
};

const std::vector<DatasetEntry>& datasets();
std::vector<std::string> dataset_names();
/// Throws Error(config) that lists the names.
const DatasetEntry& find_dataset(const std::string& name);

/// `folder`, or that of the environment where there is one. Throws Error(config) when the set needs one and none is given.
std::string folder_of(const DatasetEntry& dataset, const std::string& folder);
/// The same without asking for it.
std::string known_folder_of(const DatasetEntry& dataset, const std::string& folder);

}  // namespace ab
