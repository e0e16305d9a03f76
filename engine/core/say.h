#pragma once
// SPDX-License-Identifier: MIT
//
// What a program tells people while it works. A terminal that is gone, a pipe that nobody reads any more or a full
// disk costs the words and never the work: errors of writing are ignored.

#include <fmt/format.h>

#include <cstdio>
#include <string_view>
#include <utility>

namespace ab {

/// Writes `text` to `stream` at once.
inline void say_text(std::FILE* stream, std::string_view text) noexcept {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

/// The same with text to be formatted.
template <class... T> void say(std::FILE* stream, fmt::format_string<T...> format, T&&... args) {
  say_text(stream, fmt::format(format, std::forward<T>(args)...));
}

}  // namespace ab
