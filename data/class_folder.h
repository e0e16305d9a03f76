#pragma once
// SPDX-License-Identifier: MIT
//
// Which files of a folder of images are read, and which lie there and are not: nothing is left out without being counted.

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/tar.h"

namespace ab {

/// A larger file is no image of a data set.
inline constexpr std::int64_t kMaxImageFileBytes = std::int64_t{1} << 28;

/// Whether a file of that name is read as an image, by its extension.
bool has_image_extension(const std::filesystem::path& file);
/// Hidden, or left there by a system or an archiver.
bool is_hidden(const std::filesystem::path& name);

/// A path for a message: names of files may hold line breaks or bytes that are not text.
std::string printable(const std::filesystem::path& path);

/// Why a file is not read.
enum class LeftOutBecause : std::uint8_t {
  format,         ///< its extension is not one of a JPEG or PNG
  no_extension,   ///< its name has none
  deeper,         ///< it lies in a folder inside that of a class
  beside,         ///< it lies beside the folders of the classes
  broken_folder,  ///< a link in the place of a class's folder leads nowhere
};

inline constexpr LeftOutBecause kReasonsToLeaveOut[] = {LeftOutBecause::format, LeftOutBecause::no_extension,
                                                        LeftOutBecause::deeper, LeftOutBecause::beside,
                                                        LeftOutBecause::broken_folder};

/// Files that are not read, counted by reason, with the name of the first of each.
class LeftOut {
 public:
  void add(LeftOutBecause reason, const std::filesystem::path& example, std::int64_t files = 1);
  /// Adds what was left out of the folder `name`.
  void add(const LeftOut& of_folder, const std::string& name);

  std::int64_t files() const;
  std::int64_t files(LeftOutBecause reason) const { return counts_[static_cast<std::size_t>(reason)].files; }
  const std::filesystem::path& example(LeftOutBecause reason) const {
    return counts_[static_cast<std::size_t>(reason)].example;
  }
  /// "3 of another format than JPEG and PNG ('cat/a.webp'), 1 without an extension ('cat/b')"
  std::string text() const;
  /// "convert them to JPEG or PNG, end their names in .jpg or .png": for each reason that there is
  std::string remedy() const;

 private:
  struct Count {
    std::int64_t files = 0;
    std::filesystem::path example;
  };
  std::array<Count, std::size(kReasonsToLeaveOut)> counts_;
};

/// The folders in `folder`, in order of their names' bytes; hidden ones are none. Throws Error(data) when it cannot be listed.
std::vector<std::string> class_folders(const std::filesystem::path& folder, LeftOut& left_out);

/// An image of a class: a file of that name, in an archive at that place.
using ImageFile = TarMember;

/// The files in the folder of a class that are read, in order of their names' bytes. Hidden files, those of file managers
/// and notes (.txt, .json …) are not counted as left out. Throws Error(data) when it cannot be listed, or when an image
/// is a broken link.
std::vector<ImageFile> image_files(const std::filesystem::path& folder, LeftOut& left_out);

/// The same of the archives of a part: by the folder that they lie in, wherever in the archives that is. Images in no folder have
/// the class "".
std::map<std::string, std::vector<ImageFile>> image_files(const std::vector<TarMember>& members, LeftOut& left_out);

/// A class as a list or a shard names it; numbers get five digits, so that they stay in their order.
std::string in_order_of_numbers(const std::string& name);

// The shards of a WebDataset: tar archives in which KEY.jpg lies beside KEY.cls, the class as text. Elsewhere they are read as
// streams; here like any archive, image by image.

/// Whether the files of archives are those of shards.
bool are_of_shard(const std::vector<TarMember>& members);

/// The images of all shards by class, in the order of their keys. `members`: of all shards. Throws Error(data) for an image without a class.
std::map<std::string, std::vector<ImageFile>> shard_images(const std::vector<std::shared_ptr<const TarArchive>>& shards,
                                                           const std::vector<TarMember>& members, LeftOut& left_out);

}  // namespace ab
