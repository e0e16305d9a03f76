// SPDX-License-Identifier: MIT
#include "data/image_labels.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "data/class_folder.h"
#include "engine/core/check.h"

namespace ab {
namespace fs = std::filesystem;

ImageLabels read_image_labels(const fs::path& folder) {
  ImageLabels labels;
  for (const char* name : {"LOC_val_solution.csv", "val.txt"}) {
    const fs::path file = folder / name;
    std::error_code ignored;
    if (!fs::exists(file, ignored)) continue;
    std::ifstream in(file);
    std::int64_t number = 0;
    for (std::string line; std::getline(in, line);) {
      ++number;
      std::ranges::replace(line, ',', ' ');
      std::istringstream words(line);
      std::string image, label;
      if (!(words >> image)) continue;
      if (image == "ImageId") continue;  // the heading
      AB_CHECK_KIND(data, static_cast<bool>(words >> label), "imagenet: line {} of '{}' names no class of '{}'", number,
                    printable(file), printable(image));
      labels[fs::path(image).stem().string()] = label;
    }
    AB_CHECK_KIND(data, in.eof() && !labels.empty(), "imagenet: '{}' cannot be read, or names no image",
                  printable(file));
    return labels;
  }
  return labels;
}

}  // namespace ab
