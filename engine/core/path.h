#pragma once
// SPDX-License-Identifier: MIT
//
// Paths as people write them.

#include <string>

namespace ab {

/// A leading "~/", or "~" alone, as the home folder ($HOME, else that of the user's account), which a shell leaves as it is
/// in --out=~/runs, and a file always does.
std::string expand_home(const std::string& path);

/// The same place from any working folder. Where the working folder is gone, and for an empty path, `path` itself.
std::string absolute_path(const std::string& path);

}  // namespace ab
