// SPDX-License-Identifier: MIT
#include "engine/core/say.h"

#include <filesystem>
#include <new>
#include <system_error>

#include "engine/core/machine.h"

namespace ab {
namespace {

namespace fs = std::filesystem;

Error no_memory() {
  return {ErrorKind::communication,
          "the system refuses more memory; lower --batch-size or --ranks, or raise the limit (a container's, a job's, "
          "ulimit -v)"};
}

Error of_files(const fs::filesystem_error& error) {
  const std::string path = error.path1().string(), why = why_missing(path);
  return {ErrorKind::config,
          fmt::format("'{}' cannot be used: {}{}; give another path", path, error.code().message(), why)};
}

Error of_system(const std::system_error& error) {
  if (error.code() == std::errc::not_enough_memory) return no_memory();
  if (error.code() == std::errc::resource_unavailable_try_again)
    return {ErrorKind::communication,
            "the system refuses another thread; take fewer --ranks and --threads, or raise the limit on processes "
            "(ulimit -u, a container's pids.max) or on memory (ulimit -v)"};
  return {
      ErrorKind::communication,
      fmt::format("the system refuses what the program needs: {}; see its limits (ulimit -a)", error.code().message())};
}

}  // namespace

std::string why_missing(const std::string& path) {
  std::error_code problem;
  if (!fs::path(path).is_absolute() && fs::current_path(problem).empty())
    return " (the working folder has been removed: change to one that is there, or give whole paths)";
  for (fs::path at = path; !at.empty(); at = at.parent_path()) {
    if (fs::is_symlink(at, problem) && !fs::exists(at, problem))
      return fmt::format(" ({} is a link to {}, which is not there)", at.string(),
                         fs::read_symlink(at, problem).string());
    if (at == at.parent_path()) break;
  }
  return "";
}

Error in_our_words(const std::exception& error) {
  if (const auto* ours = dynamic_cast<const Error*>(&error)) return *ours;
  if (const auto* files = dynamic_cast<const fs::filesystem_error*>(&error)) return of_files(*files);
  if (const auto* system = dynamic_cast<const std::system_error*>(&error)) return of_system(*system);
  // Some libraries have words of their own for it.
  if (dynamic_cast<const std::bad_alloc*>(&error) || dynamic_cast<const std::length_error*>(&error) ||
      available_host_bytes() < kBytesForLibraries)
    return no_memory();
  // The program that uses this library may say itself what failed.
  if (dynamic_cast<const std::runtime_error*>(&error)) return {ErrorKind::communication, error.what()};
  const char* const bug = dynamic_cast<const Bug*>(&error) ? "" : "bug in abtrain: ";
  return {ErrorKind::communication, fmt::format("{}{}; please report it with the command", bug, error.what())};
}

}  // namespace ab
