// SPDX-License-Identifier: MIT
//
// Any lines, with the hash that belongs to them, are either one Error(data) or files that lie inside the archive.
#include <cstdint>

#include "data/archive_index.h"
#include "engine/core/check.h"
#include "engine/core/hash.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  constexpr std::int64_t kArchiveBytes = 4096;
  const std::string lines(reinterpret_cast<const char*>(bytes), count);
  try {
    const std::string index = lines + fmt::format("{:016x}\n", ab::hash64(bytes, count));
    for (const ab::TarMember& member : ab::read_archive_index(index, kArchiveBytes, "fuzz.index"))
      AB_ASSERT(member.offset >= 0 && member.bytes >= 0 && member.bytes <= kArchiveBytes - member.offset &&
                member.source_bytes >= 0 && !member.name.empty());
  } catch (const ab::Error& error) {
    AB_ASSERT(error.kind() == ab::ErrorKind::data);
  }
  return 0;
}
