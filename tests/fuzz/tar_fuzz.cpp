// SPDX-License-Identifier: MIT
//
// Any bytes are either one Error(data) or files that lie inside them.
#include "data/tar.h"
#include "engine/core/check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  const auto size = static_cast<std::int64_t>(count);
  try {
    for (const ab::TarMember& member : ab::tar_members({bytes, bytes + count}, "fuzz.tar"))
      AB_ASSERT(member.offset >= 0 && member.bytes >= 0 && member.bytes <= size - member.offset);
  } catch (const ab::Error& error) {
    AB_ASSERT(error.kind() == ab::ErrorKind::data);
  }
  return 0;
}
