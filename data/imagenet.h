#pragma once
// SPDX-License-Identifier: MIT
//
// ImageNet in the layout of ILSVRC 2012: train/<class>/*.JPEG and val/<class>/*.JPEG, decoded as they are
// read. Classes are the folders of train, in order of their names, and files are ordered by name within a
// class, so that every node agrees on the numbers. Any set in this layout will do.

#include <string>

#include "data/class_folder.h"
#include "data/dataset.h"

namespace ab {

class ImageFolder : public Dataset {
 public:
  /// Lists the images of root/<class>, one folder for each of `class_names`; a folder may be missing. Adds what it
  /// leaves out to `left_out`.
  ImageFolder(std::string set_name, std::string root, std::vector<std::string> class_names, LeftOut& left_out);

  /// Keeps `n` images, evenly spaced over the list and so over the classes (all when n <= 0 or n >= count).
  void thin_out(std::int64_t n);

  const std::vector<std::string>& class_names() const { return class_names_; }
  std::string path(std::int64_t i) const;
  int label(std::int64_t i) const override { return labels_[static_cast<std::size_t>(i)]; }
  ImageView read(std::int64_t i, Image& buffer, const ChoosePart& part = {}) const override;
  bool reads_files() const override { return true; }
  std::uint64_t fingerprint() const override;
  std::vector<std::uint64_t> contents() const override;

 private:
  std::string root_;
  std::vector<std::string> class_names_;
  std::string file_names_;                  ///< one after the other: a million strings would take twice the memory
  std::vector<std::uint32_t> name_begins_;  ///< [count + 1]
  std::vector<std::uint16_t> labels_;
};

/// Reads the lists of files under `folder`. Throws Error(data) when a part is missing, when a class of train
/// has no images, and when val has a class that train lacks; files that are left out are warnings. At most `train_count` and `val_count` images
/// each, evenly spaced over the classes; 0: all.
TrainAndTest load_imagenet(const std::string& folder, std::int64_t train_count = 0, std::int64_t val_count = 0);

}  // namespace ab
