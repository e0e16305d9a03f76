// SPDX-License-Identifier: MIT
#include "engine/io/checkpoint_folder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "engine/core/atomic_file.h"

namespace ab {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStep = "step_", kSaving = ".saving_", kRemoving = ".removing_", kReplaced = ".replaced",
                           kLater = "later_";

std::string name_of_step(std::int64_t step) { return fmt::format("{}{:012}", kStep, step); }

/// The step in the name of a checkpoint, or -1.
std::int64_t step_named(const std::string& name) {
  std::int64_t step = -1;
  if (name.starts_with(kStep)) std::from_chars(name.data() + kStep.size(), name.data() + name.size(), step);
  return step >= 0 && name_of_step(step) == name ? step : -1;
}

/// The name that a checkpoint had before it was about to be replaced; empty for what is none.
std::string replaced_name(const std::string& name) {
  if (!name.starts_with(kSaving) || !name.ends_with(kReplaced)) return "";
  const std::string final_name = name.substr(kSaving.size(), name_of_step(0).size());
  return step_named(final_name) >= 0 ? final_name : "";
}

/// Names of what lies in `folder`; none when there is no such folder.
std::vector<std::string> names_in(const std::string& folder) {
  std::error_code problem;
  std::vector<std::string> names;
  for (fs::directory_iterator at(folder, problem), end; !problem && at != end; at.increment(problem))
    names.push_back(at->path().filename().string());
  AB_CHECK_KIND(checkpoint, !problem || problem == std::errc::no_such_file_or_directory, "cannot read folder {}: {}",
                folder, problem.message());
  return names;
}

void remove_folder(const std::string& path) {
  std::error_code problem;
  fs::remove_all(path, problem);
  AB_CHECK_KIND(checkpoint, !problem, "cannot remove {}: {}", path, problem.message());
}

void rename_folder(const std::string& from, const std::string& to) {
  AB_CHECK_KIND(checkpoint, ::rename(from.c_str(), to.c_str()) == 0, "cannot rename {} to {}: {}", from, to,
                std::strerror(errno));
}

}  // namespace

std::string checkpoint_path(const std::string& folder, std::int64_t step) { return folder + "/" + name_of_step(step); }
std::string manifest_path(const std::string& checkpoint) { return checkpoint + "/manifest.json"; }
std::string shard_path(const std::string& checkpoint, int rank) {
  return fmt::format("{}/rank_{:05}.safetensors", checkpoint, rank);
}

std::vector<std::int64_t> checkpoints_in(const std::string& folder) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : names_in(folder))
    if (const std::int64_t step = step_named(name); step >= 0) steps.push_back(step);
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

bool holds_checkpoints(const std::string& folder) {
  const std::vector<std::string> names = names_in(folder);
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return step_named(name) >= 0 || !replaced_name(name).empty(); });
}

void restore_replaced(const std::string& folder) {
  for (const std::string& name : names_in(folder)) {
    const std::string final_name = replaced_name(name);
    std::error_code problem;
    if (!final_name.empty() && !fs::exists(folder + "/" + final_name, problem))
      rename_folder(folder + "/" + name, folder + "/" + final_name);
  }
}

std::string remove_leftovers(const std::string& folder) {
  restore_replaced(folder);
  std::string problem;
  for (const std::string& name : names_in(folder)) {
    if (!name.starts_with(kSaving) && !name.starts_with(kRemoving)) continue;
    try {
      remove_folder(folder + "/" + name);
    } catch (const Error& error) {
      problem = error.what();
    }
  }
  return problem;
}

void remove_checkpoint(const std::string& folder, std::int64_t step) {
  const std::string removing = fmt::format("{}/{}{}", folder, kRemoving, name_of_step(step));
  remove_folder(removing);
  rename_folder(checkpoint_path(folder, step), removing);
  remove_folder(removing);
}

void remove_old_checkpoints(const std::string& folder, std::int64_t step, int keep) {
  int kept = 1;  // the one of `step`
  for (const std::int64_t other : checkpoints_in(folder))
    if (other < step && ++kept > keep) remove_checkpoint(folder, other);
}

std::vector<std::string> set_later_checkpoints_aside(const std::string& folder, std::int64_t step) {
  std::vector<std::string> paths;
  for (const std::int64_t other : checkpoints_in(folder)) {
    if (other <= step) continue;
    paths.push_back(fmt::format("{}/{}{}", folder, kLater, name_of_step(other)));
    remove_folder(paths.back());
    rename_folder(checkpoint_path(folder, other), paths.back());
  }
  return paths;
}

UnpublishedCheckpoint::UnpublishedCheckpoint(std::string folder, std::int64_t step)
    : folder_(std::move(folder)), final_(checkpoint_path(folder_, step)) {
  std::error_code problem;
  const bool is_new = fs::create_directories(folder_, problem);
  AB_CHECK_KIND(checkpoint, !problem, "cannot make folder {}: {}", folder_, problem.message());
  if (is_new) sync_folder(fs::absolute(folder_).lexically_normal().parent_path().string());
  const std::string temporary = fmt::format("{}/{}{}.{}", folder_, kSaving, name_of_step(step), ::getpid());
  AB_CHECK_KIND(checkpoint, fs::create_directory(temporary, problem), "cannot make folder {}: {}", temporary,
                problem ? problem.message() : "it exists, so another job saves here");
  temporary_ = temporary;
}

UnpublishedCheckpoint::~UnpublishedCheckpoint() {
  std::error_code ignored;  // what is left is removed before the next checkpoint
  fs::remove_all(temporary_, ignored);
}

void UnpublishedCheckpoint::publish() {
  sync_folder(temporary_);
  std::error_code problem;
  if (!fs::exists(final_, problem)) {
    rename_folder(temporary_, final_);
  } else if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, final_.c_str(), RENAME_EXCHANGE) != 0) {
    // Not every disk can swap two folders; then there is a moment without this step.
    AB_CHECK_KIND(checkpoint, errno == EINVAL || errno == ENOSYS || errno == ENOTSUP, "cannot replace {}: {}", final_,
                  std::strerror(errno));
    const std::string replaced = temporary_ + std::string(kReplaced);
    rename_folder(final_, replaced);
    rename_folder(temporary_, final_);
    remove_folder(replaced);
  }
  sync_folder(folder_);
}

}  // namespace ab
