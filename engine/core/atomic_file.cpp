// SPDX-License-Identifier: MIT
#include "engine/core/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "engine/core/say.h"

namespace ab {
namespace {

std::string system_reason() { return std::strerror(errno); }

std::string reason_of_path(const std::string& path) {
  const int error = errno;
  return std::strerror(error) + (error == ENOENT ? why_missing(path) : "");
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  for (int attempt = 0; descriptor_ < 0; ++attempt) {
    temporary_ = fmt::format("{}.{}.{}.tmp", path_, ::getpid(), attempt);
    descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    AB_CHECK_KIND(checkpoint, descriptor_ >= 0 || errno == EEXIST, "cannot write {}: {}", path_, reason_of_path(path_));
  }
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* bytes, std::size_t count) {
  const char* at = static_cast<const char*>(bytes);
  while (count > 0) {
    const ssize_t written = ::write(descriptor_, at, std::min<std::size_t>(count, 1u << 30));
    if (written < 0 && errno == EINTR) continue;
    AB_CHECK_KIND(checkpoint, written > 0, "cannot write {}: {}", path_, system_reason());
    at += written;
    count -= static_cast<std::size_t>(written);
  }
}

void AtomicFile::commit() {
  AB_CHECK_KIND(checkpoint, ::fsync(descriptor_) == 0, "cannot write {} to disk: {}", path_, system_reason());
  AB_CHECK_KIND(checkpoint, ::rename(temporary_.c_str(), path_.c_str()) == 0, "cannot replace {}: {}", path_,
                system_reason());
  ::close(descriptor_);
  descriptor_ = -1;
  sync_folder(folder_of(path_));
}

bool is_temporary_of(std::string_view name, std::string_view target) {
  constexpr std::string_view kEnd = ".tmp";
  if (!name.starts_with(target) || !name.ends_with(kEnd) || name.size() < target.size() + kEnd.size()) return false;
  const std::string_view numbers = name.substr(target.size(), name.size() - target.size() - kEnd.size());
  const std::size_t second = numbers.find('.', 1);  // ".4711.0"
  return numbers.starts_with('.') && second != numbers.npos && second > 1 && second + 1 < numbers.size() &&
         numbers.find_first_not_of("0123456789", 1) == second &&
         numbers.find_first_not_of("0123456789", second + 1) == numbers.npos;
}

void sync_folder(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  AB_CHECK_KIND(checkpoint, descriptor >= 0, "cannot open folder {}: {}", folder, system_reason());
  const bool synced = ::fsync(descriptor) == 0 || errno == EINVAL || errno == ENOTSUP;  // not on every network disk
  const std::string reason = system_reason();
  ::close(descriptor);
  AB_CHECK_KIND(checkpoint, synced, "cannot sync folder {}: {}", folder, reason);
}

void write_file_atomically(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

std::string read_file(const std::string& path, ErrorKind kind, std::uint64_t max_bytes) {
  const auto fail = [&](const std::string& reason) {
    throw Error(kind, fmt::format("cannot read {}: {}", path, reason));
  };
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail(reason_of_path(path));
  std::string text;
  char block[1 << 16];
  ssize_t count;
  while ((count = ::read(descriptor, block, sizeof block)) > 0 && text.size() <= max_bytes)
    text.append(block, static_cast<std::size_t>(count));
  const std::string reason = count < 0 ? system_reason() : "";
  ::close(descriptor);
  if (!reason.empty()) fail(reason);
  if (text.size() > max_bytes) fail(fmt::format("it is larger than {} bytes", max_bytes));
  return text;
}

}  // namespace ab
