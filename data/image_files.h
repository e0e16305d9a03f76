#pragma once
// SPDX-License-Identifier: MIT
//
// Labelled images in files, or in tar archives, decoded as they are read.

#include <memory>
#include <string>
#include <vector>

#include "data/class_folder.h"
#include "data/dataset.h"

namespace ab {

/// Where a part of the set lies.
struct ImagePlace {
  std::string root;                                           ///< a folder, the first of the archives, or a list
  std::vector<std::shared_ptr<const TarArchive>> archives{};  ///< none: a folder
  bool flat = false;                                          ///< files lie in no folder of their class
  bool listed = false;                                        ///< files lie where the list says (read_image_list())
};

class ImageFiles : public Dataset {
 public:
  /// The images of each class, those of `class_names` in turn.
  ImageFiles(std::string set_name, ImagePlace place, std::vector<std::string> class_names,
             const std::vector<std::vector<ImageFile>>& files_of_class);

  /// Keeps `n` images, evenly spaced over the list and so over the classes (all when n <= 0 or n >= count).
  void thin_out(std::int64_t n);

  const std::vector<std::string>& class_names() const { return class_names_; }
  /// Without its folder; in a shard, or a flat part, as it is named there.
  std::string file_name(std::int64_t i) const;
  /// In an archive a name for messages.
  std::string path(std::int64_t i) const;
  /// Where an index tells what it holds, it holds that.
  std::vector<std::uint8_t> file(std::int64_t i) const override;
  /// Of the file; of the one that it was packed from, where an index tells.
  std::int64_t file_bytes(std::int64_t i) const;
  int label(std::int64_t i) const override { return labels_[static_cast<std::size_t>(i)]; }
  ImageView read(std::int64_t i, Image& buffer, const ChoosePart& part = {}) const override;
  std::string image_name(std::int64_t i) const override { return printable(path(i)); }
  bool reads_files() const override { return true; }
  std::uint64_t fingerprint() const override;
  std::vector<std::uint64_t> contents() const override;

 private:
  ImagePlace place_;
  std::vector<std::string> class_names_;
  std::string file_names_;                  ///< one after the other: a million strings would take twice the memory
  std::vector<std::uint32_t> name_begins_;  ///< [count + 1]
  std::vector<std::uint16_t> labels_;
  std::vector<TarPlace> places_;  ///< in archives
};

}  // namespace ab
