#pragma once
// SPDX-License-Identifier: MIT
//
// Files that are either the old one or the complete new one, whatever happens while they are written: the
// bytes go to a temporary file beside the target, are fsynced, renamed over it, and the folder is fsynced.
// A rename without the first fsync can leave a file of zeros after a power cut.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/core/check.h"

namespace ab {

/// Collects the new content of `path`; nothing is visible there until commit(). Without a commit the
/// temporary file is removed. Every failure throws Error(checkpoint) with the path and the system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* bytes, std::size_t count);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Publishes what was written under the final name.
  void commit();

 private:
  std::string path_, temporary_;
  int descriptor_ = -1;
};

/// Whether `name` is that of a temporary file for `target` ("model.4711.0.tmp" of "model"), which a process that was killed
/// leaves behind.
bool is_temporary_of(std::string_view name, std::string_view target);

/// Makes it durable which files and folders `folder` holds. Throws Error(checkpoint).
void sync_folder(const std::string& folder);

/// Replaces the content of `path`.
void write_file_atomically(const std::string& path, std::string_view text);

/// The whole file, at most `max_bytes` of it. Throws Error of `kind` when it cannot be read or is larger.
std::string read_file(const std::string& path, ErrorKind kind, std::uint64_t max_bytes = 1ull << 30);

}  // namespace ab
