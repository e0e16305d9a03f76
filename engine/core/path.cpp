// SPDX-License-Identifier: MIT
#include "engine/core/path.h"

#include <pwd.h>
#include <unistd.h>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>

namespace ab {
namespace {

std::string home_folder() {
  const char* const home = std::getenv("HOME");
  if (home && *home) return home;
  const passwd* const account = ::getpwuid(::getuid());
  return account ? account->pw_dir : "";
}

}  // namespace

std::string expand_home(const std::string& path) {
  if (path != "~" && !path.starts_with("~/")) return path;
  const std::string home = home_folder();
  return home.empty() ? path : home + path.substr(1);
}

std::string absolute_path(const std::string& path) {
  std::error_code problem;
  const std::filesystem::path absolute = std::filesystem::absolute(path, problem);
  return problem || path.empty() || !is_utf8(absolute.string()) ? path : absolute.string();
}

bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i++]);
    if (first < 0x80) continue;
    const int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
    if (first < 0xC2 || first > 0xF4 || text.size() - i < static_cast<std::size_t>(more)) return false;
    std::uint32_t code = first & (0x3Fu >> more);
    for (int k = 0; k < more; ++k) {
      const auto next = static_cast<unsigned char>(text[i++]);
      if ((next & 0xC0) != 0x80) return false;
      code = code << 6 | (next & 0x3F);
    }
    const std::uint32_t least = more == 3 ? 0x10000 : more == 2 ? 0x800 : 0x80;
    if (code < least || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return false;
  }
  return true;
}

}  // namespace ab
