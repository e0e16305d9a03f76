// SPDX-License-Identifier: MIT
#include "apps/commands/report_error.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <new>

#include "engine/core/check.h"
#include "engine/core/say.h"

namespace ab {
namespace {

constexpr int kInternalError = 1;

int exit_code_of(const std::exception& error) {
  if (const auto* ours = dynamic_cast<const Error*>(&error)) return static_cast<int>(ours->kind());
  if (dynamic_cast<const CLI::ParseError*>(&error) || dynamic_cast<const std::filesystem::filesystem_error*>(&error))
    return static_cast<int>(ErrorKind::config);
  if (dynamic_cast<const std::bad_alloc*>(&error)) return static_cast<int>(ErrorKind::communication);
  return kInternalError;
}

std::string message_of(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error)) return "out of memory; lower --batch-size or --ranks";
  if (dynamic_cast<const CLI::ParseError*>(&error)) return std::string(error.what()) + " (abtrain --help)";
  return error.what();
}

}  // namespace

int report_error(const std::exception& error, const std::string& context) {
  std::string line = context + message_of(error);
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  say(stderr, "abtrain: {}\n", line);
  return exit_code_of(error);
}

}  // namespace ab
