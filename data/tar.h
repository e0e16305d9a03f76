#pragma once
// SPDX-License-Identifier: MIT
//
// Tar archives (ustar, pax and GNU, not compressed), of which files are read in any order: the headers are gone through once,
// or an index tells what they say (archive_index.h). Nothing is unpacked, so names lead nowhere.

#include <cstdint>
#include <string>
#include <vector>

namespace ab {

/// Where the contents of a file lie in an archive, the outer one.
struct TarPlace {
  std::int64_t offset = 0, bytes = 0;
  std::int64_t source_bytes = -1;  ///< of the file that it was packed from, as an index tells; -1: none does
  std::uint64_t hash = 0;          ///< hash64() of the contents, where an index tells
  std::uint16_t archive = 0;       ///< its number among those of a part
};

/// A regular file in an archive. One of an archive inside, which is not hidden, has that one's name, without ".tar", for a
/// folder.
struct TarMember : TarPlace {
  std::string name;
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
  std::int64_t bytes() const { return size_; }
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

/// The header of a file of that name and size, in whole blocks: ustar, after one of pax where the name is too long for it. Of no
/// time and no owner, so that equal files make equal archives.
std::string tar_header(const std::string& name, std::int64_t bytes);
/// The zeros that fill the last block of a file.
std::string tar_padding(std::int64_t bytes);
/// Two blocks of zeros.
std::string tar_end();

}  // namespace ab
