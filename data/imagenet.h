#pragma once
// SPDX-License-Identifier: MIT
//
// ImageNet in the layout of ILSVRC 2012: train/<class>/*.JPEG and val/<class>/*.JPEG, decoded as they are
// read. Classes are the folders of train, in order of their names, and files are ordered by name within a
// class, so that every node agrees on the numbers. Any set in this layout will do. Either part may be a tar archive instead,
// with such folders or with an archive for each class, and val may be flat, with a list of labels beside it: the same images are
// the same data set from wherever they are read.

#include <string>

#include "data/class_folder.h"
#include "data/dataset.h"

namespace ab {

/// Where a part of the set lies.
struct ImagePlace {
  std::string root;                             ///< a folder or an archive
  std::shared_ptr<const TarArchive> archive{};  ///< null: a folder
  bool flat = false;                            ///< a folder whose files lie in none of their class
};

class ImageFiles : public Dataset {
 public:
  /// The images of each class, those of `class_names` in turn.
  ImageFiles(std::string set_name, ImagePlace place, std::vector<std::string> class_names,
             const std::vector<std::vector<ImageFile>>& files_of_class);

  /// Keeps `n` images, evenly spaced over the list and so over the classes (all when n <= 0 or n >= count).
  void thin_out(std::int64_t n);

  const std::vector<std::string>& class_names() const { return class_names_; }
  /// In an archive a name for messages.
  std::string path(std::int64_t i) const;
  int label(std::int64_t i) const override { return labels_[static_cast<std::size_t>(i)]; }
  ImageView read(std::int64_t i, Image& buffer, const ChoosePart& part = {}) const override;
  bool reads_files() const override { return true; }
  std::uint64_t fingerprint() const override;
  std::vector<std::uint64_t> contents() const override;

 private:
  std::int64_t file_bytes(std::int64_t i) const;

  ImagePlace place_;
  std::vector<std::string> class_names_;
  std::string file_names_;                  ///< one after the other: a million strings would take twice the memory
  std::vector<std::uint32_t> name_begins_;  ///< [count + 1]
  std::vector<std::uint16_t> labels_;
  std::vector<std::int64_t> offsets_, bytes_;  ///< in an archive
};

/// Reads the lists of files under `folder`: of train, or train.tar, or ILSVRC2012_img_train.tar, and likewise of val. Throws Error(data) when a part is missing, when a class of train
/// has no images, and when val has a class that train lacks; files that are left out are warnings. At most `train_count` and `val_count` images
/// each, evenly spaced over the classes; 0: all.
TrainAndTest load_imagenet(const std::string& folder, std::int64_t train_count = 0, std::int64_t val_count = 0);

}  // namespace ab
