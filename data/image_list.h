#pragma once
// SPDX-License-Identifier: MIT
//
// Lists of the images of a part (train, val), so that nobody goes through its folders: one that is saved after they were read,
// and one that is given in their place.

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "data/class_folder.h"

namespace ab {

/// What lies in the folders of the classes of a part.
struct FolderImages {
  std::map<std::string, std::vector<ImageFile>> files{};  ///< by class
  LeftOut left_out{};
};

inline constexpr std::int64_t kImagesWorthSaving = 10000;

/// Of `root`/<class>/*: from the list that was saved in cache_folder(), as long as `root` and each folder of a class were last
/// changed when they were then, to the nanosecond; else from the folders. `saves`: the list then, when it has kImagesWorthSaving, no link in the place of a class's folder leads
/// nowhere, and no folder says that it changed a moment ago: it could change again and say the same. No word is lost on a list that cannot be written; `damaged` becomes
/// the path of one that is damaged. Throws Error(data) as class_folders() and image_files() do.
FolderImages read_class_folders(const std::filesystem::path& root, bool saves, std::string& damaged);

/// What is behind the last slash.
std::string_view last_part(std::string_view path);

/// The images of a text file with the path of one, relative to the file's folder or absolute, and after it its class on each line. Names are
/// these paths; within a class they are in order of the last parts, the names of files. Throws Error(data) for a line without a path or a class,
/// with a path that is there twice or is none of a JPEG or PNG, and when there is no image.
std::map<std::string, std::vector<ImageFile>> read_image_list(const std::filesystem::path& list);

}  // namespace ab
