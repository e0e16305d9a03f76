#pragma once
// SPDX-License-Identifier: MIT
//
// Tar archives (ustar, pax and GNU, not compressed), of which files are read in any order: the headers are gone through once.
// Nothing is unpacked, so names lead nowhere.

#include <cstdint>
#include <string>
#include <vector>

namespace ab {

/// A regular file in an archive. One of an archive inside, which is not hidden, has that one's name, without ".tar", for a
/// folder.
struct TarMember {
  std::string name;
  std::int64_t offset = 0, bytes = 0;  ///< where its contents lie in the outer archive
};

/// Many threads may read at once.
class TarArchive {
 public:
  /// Throws Error(data) when it cannot be read, or is damaged or cut off.
  explicit TarArchive(std::string path);
  ~TarArchive();
  TarArchive(const TarArchive&) = delete;
  TarArchive& operator=(const TarArchive&) = delete;

  const std::string& path() const { return path_; }
  /// Its regular files in their order, those of archives inside it in the place of these (of one level). Throws Error(data) for
  /// an image that is a link or a sparse file.
  std::vector<TarMember> members() const;
  /// Throws Error(data) that names `what`.
  std::vector<std::uint8_t> read(std::int64_t offset, std::int64_t bytes, const std::string& what) const;

 private:
  std::string path_;
  int file_;
  std::int64_t size_;
};

/// The members of an archive whose bytes are at hand. `where` names it in errors.
std::vector<TarMember> tar_members(const std::vector<std::uint8_t>& archive, const std::string& where);

}  // namespace ab
