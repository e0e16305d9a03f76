#pragma once
// SPDX-License-Identifier: MIT
//
// Paths as people write them, and text that files and terminals can hold.

#include <string>
#include <string_view>

namespace ab {

/// A leading "~/", or "~" alone, as the home folder ($HOME, else that of the user's account), which a shell leaves as it is
/// in --out=~/runs, and a file always does.
std::string expand_home(const std::string& path);

/// The same place from any working folder. An empty path stays empty, and one stays as it is where the working folder is gone
/// or has a name that is not UTF-8, which config.toml could not keep.
std::string absolute_path(const std::string& path);

/// Whether `text` is UTF-8 (RFC 3629): nothing cut off, overlong, of UTF-16 or above U+10FFFF.
bool is_utf8(std::string_view text);

}  // namespace ab
