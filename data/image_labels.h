#pragma once
// SPDX-License-Identifier: MIT
//
// Which class an image has that lies in no folder of its class, as those of ImageNet's val in the official archive.

#include <filesystem>
#include <map>
#include <string>

namespace ab {

/// The class of each image, by its name without extension.
using ImageLabels = std::map<std::string, std::string>;

/// The list beside val: LOC_val_solution.csv, as Kaggle has it, or val.txt, an image and its class on each line. Empty when there is
/// none. Throws Error(data) when it cannot be read, or does not name a class on every line.
ImageLabels read_image_labels(const std::filesystem::path& folder);

}  // namespace ab
