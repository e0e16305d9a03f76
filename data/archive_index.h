#pragma once
// SPDX-License-Identifier: MIT
//
// The index of a tar archive: where its files lie and what they hold, so that a set opens without going through the headers
// of a million images, and damage is seen in training too. NAME.index lies beside NAME.tar:
//
//   abtrain index 1 ARCHIVE_BYTES
//   OFFSET BYTES SOURCE_BYTES HASH NAME      for each regular file, in the order of the archive
//   HASH                                     of all lines above
//
// SOURCE_BYTES: of the file that it was packed from. Hashes are XXH3-64 in 16 hexadecimal digits.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tar.h"

namespace ab {

/// "train.index" of "train.tar"
std::string index_path(const std::string& archive);

/// The lines of an index; `members` have their hashes. Throws Error(data) for a name with a line break, naming `where`.
std::string archive_index(const std::vector<TarMember>& members, std::int64_t archive_bytes, const std::string& where);

/// The files by an index of an archive of that size, all within it. Throws Error(data) that names `where` when the index is damaged
/// or of another archive.
std::vector<TarMember> read_archive_index(std::string_view index, std::int64_t archive_bytes, const std::string& where);

/// The same by the index beside an archive. Nothing where there is none, or none that can be used, for the reason in `problem`.
std::optional<std::vector<TarMember>> read_archive_index(const std::string& archive, std::int64_t archive_bytes,
                                                         std::string& problem);

/// Makes an archive's index by reading it whole.
std::string make_archive_index(const TarArchive& archive);

}  // namespace ab
