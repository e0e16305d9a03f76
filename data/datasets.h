#pragma once
// SPDX-License-Identifier: MIT
//
// The data sets of the program. A new one is a file that loads it, its declaration below and one row in datasets.cpp: --dataset, the sizes
// that a plan needs and the messages about missing files follow.

#include <filesystem>
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
  /// At most so many images of each part; 0: all. `saves_lists`: of files, for the next to load them. Throws Error(data) that
  /// names what is missing or damaged.
  TrainAndTest (*load)(const std::string& folder, std::int64_t train_images, std::int64_t test_images,
                       bool saves_lists);
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

// CIFAR-10 and CIFAR-100 in their binary versions (Krizhevsky, "Learning multiple layers of features from tiny images", 2009).

struct ImageSets {
  ImageSet train, test;
};

/// CIFAR-10: data_batch_1..5.bin and test_batch.bin of 1 + 3072 bytes a record, in `folder`.
/// Throws Error(data) naming the file when one is missing, truncated, or holds a label out of range.
ImageSets load_cifar10(const std::string& folder);
/// CIFAR-100: train.bin and test.bin of 2 + 3072 bytes a record (coarse label, fine label).
ImageSets load_cifar100(const std::string& folder);

// A built-in data set for machines without CIFAR: ten classes of procedurally drawn shapes with nuisance variation, deterministic in
// the seed, written once in CIFAR-10's binary format and read back by its loader.

struct SyntheticOptions {
  std::int64_t train_count = 50000;
  std::int64_t test_count = 10000;
  std::uint64_t seed = 0;
};

/// $XDG_CACHE_HOME/abtrain or ~/.cache/abtrain, which need not be there; empty where neither variable is set.
std::filesystem::path cache_folder();

/// Returns the folder that holds the set; draws and writes it first when it is not there yet (atomically:
/// several processes may call this at once). `cache_root` empty: cache_folder().
std::string ensure_synthetic_cifar10(const SyntheticOptions& options, const std::string& cache_root = {});

// ImageNet in the layout of ILSVRC 2012: train/<class>/*.JPEG and val/<class>/*.JPEG, decoded as they are
// read. Classes are the folders of train, in order of their names, and files are ordered by name within a
// class, so that every node agrees on the numbers. Any set in this layout will do. Either part may be a tar archive instead,
// with such folders or with an archive for each class, several with such folders, or WebDataset's shards, and val may be flat,
// with a list of labels beside it, or a part is a list of files (image_list.h): the same images are the same data set from wherever they are read.

/// Reads the lists of files under `folder`: of train, or train.tar, or ILSVRC2012_img_train.tar, and likewise of val. Throws Error(data) when a part is missing, when a class of train
/// has no images, and when val has a class that train lacks; files that are left out are warnings. At most `train_count` and `val_count` images
/// each, evenly spaced over the classes; 0: all. `saves_lists`: as read_class_folders() does.
TrainAndTest load_imagenet(const std::string& folder, std::int64_t train_count = 0, std::int64_t val_count = 0,
                           bool saves_lists = true);

/// The archives of a part, train or val: one, or those that are named as its shards.
std::vector<std::string> archives_of(const std::filesystem::path& folder, const std::string& part);

}  // namespace ab
