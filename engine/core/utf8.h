#pragma once
// SPDX-License-Identifier: MIT
//
// Text that files and terminals can hold.

#include <string_view>

namespace ab {

/// Whether `text` is UTF-8 (RFC 3629): nothing cut off, overlong, of UTF-16 or above U+10FFFF.
bool is_utf8(std::string_view text);

}  // namespace ab
