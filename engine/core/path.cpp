// SPDX-License-Identifier: MIT
#include "engine/core/path.h"

#include <pwd.h>
#include <unistd.h>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

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
  try {
    (void)nlohmann::json(text).dump();
    return true;
  } catch (const nlohmann::json::type_error&) {
    return false;
  }
}

}  // namespace ab
