#pragma once
// SPDX-License-Identifier: MIT
//
// ImageNet in the layout of ILSVRC 2012: train/<class>/*.JPEG and val/<class>/*.JPEG, decoded as they are
// read. Classes are the folders of train, in order of their names, and files are ordered by name within a
// class, so that every node agrees on the numbers. Any set in this layout will do. Either part may be a tar archive instead,
// with such folders or with an archive for each class, several with such folders, or WebDataset's shards, and val may be flat,
// with a list of labels beside it: the same images are the same data set from wherever they are read.

#include <filesystem>
#include <string>
#include <vector>

#include "data/image_files.h"

namespace ab {

/// Reads the lists of files under `folder`: of train, or train.tar, or ILSVRC2012_img_train.tar, and likewise of val. Throws Error(data) when a part is missing, when a class of train
/// has no images, and when val has a class that train lacks; files that are left out are warnings. At most `train_count` and `val_count` images
/// each, evenly spaced over the classes; 0: all.
TrainAndTest load_imagenet(const std::string& folder, std::int64_t train_count = 0, std::int64_t val_count = 0);

/// The archives of a part, train or val: one, or those that are named as its shards.
std::vector<std::string> archives_of(const std::filesystem::path& folder, const std::string& part);

}  // namespace ab
