// SPDX-License-Identifier: MIT
#include "apps/commands/commands.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <nlohmann/json.hpp>

#include "engine/core/say.h"

namespace ab {
namespace {

constexpr int kRefused = static_cast<int>(ErrorKind::communication);

Error error_of(const std::exception& error) {
  if (dynamic_cast<const CLI::Error*>(&error))
    return {ErrorKind::config, fmt::format("{} (abtrain --help)", error.what())};
  if (dynamic_cast<const nlohmann::json::exception*>(&error))
    return {ErrorKind::data,
            fmt::format("a JSON file is damaged, or of another program: {}; write it anew", error.what())};
  return in_our_words(error);
}

[[noreturn]] void end_uncaught() {
  int code = kRefused;
  try {
    if (std::current_exception()) std::rethrow_exception(std::current_exception());
  } catch (const std::exception& error) {
    code = report_error(error);
  } catch (...) {
  }
  std::_Exit(code);
}

/// libgomp and OpenBLAS end the program where the system refuses them threads or memory, with words of their own.
void translate_exit(int code, void*) {
  if (code != EXIT_FAILURE) return;
  std::fflush(nullptr);
  say_text(
      stderr,
      "abtrain: a library ended the program; where it was refused threads or memory, take fewer --threads and --ranks, "
      "or raise the limit (ulimit -u, ulimit -v, a container's)\n");
  std::_Exit(kRefused);
}

}  // namespace

int report_error(const std::exception& error, const std::string& context) {
  try {
    const Error ours = error_of(error);
    std::string line = context + ours.what();
    std::replace_if(
        line.begin(), line.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
    say(stderr, "abtrain: {}\n", line);
    return static_cast<int>(ours.kind());
  } catch (const std::bad_alloc&) {  // not even for words
    say_text(stderr, "abtrain: the system refuses more memory; raise its limit (a container's, a job's, ulimit -v)\n");
    return kRefused;
  }
}

void report_what_escapes() {
  std::set_terminate(end_uncaught);
  ::on_exit(translate_exit, nullptr);
}

}  // namespace ab
