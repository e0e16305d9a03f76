#pragma once
// SPDX-License-Identifier: MIT
//
// The words of a program while it works, and of its errors. A terminal that is gone, a pipe that nobody reads any more or a full
// disk costs the words and never the work: errors of writing are ignored.

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string_view>
#include <utility>

#include "engine/core/check.h"

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

/// A failure as an error of ours: an exception of the standard library or another one (memory, threads, files) becomes one
/// sentence with what to do, and gets the kind that belongs to it.
Error in_our_words(const std::exception& error);

/// The reason why a path was not found, as " (it is a link to …, which is not there)"; empty where nothing does.
std::string why_missing(const std::string& path);

}  // namespace ab
