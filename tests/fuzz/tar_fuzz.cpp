// SPDX-License-Identifier: MIT
//
// Any bytes are either one Error(data) or files that lie inside them.
#include <sys/mman.h>
#include <unistd.h>

#include "data/tar.h"
#include "engine/core/check.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  static const int file = ::memfd_create("fuzz.tar", MFD_CLOEXEC);
  AB_ASSERT(::ftruncate(file, 0) == 0 && ::pwrite(file, bytes, count, 0) == static_cast<ssize_t>(count));
  const auto size = static_cast<std::int64_t>(count);
  try {
    for (const ab::TarMember& member : ab::TarArchive(fmt::format("/proc/self/fd/{}", file)).members())
      AB_ASSERT(member.offset >= 0 && member.bytes >= 0 && member.bytes <= size - member.offset);
  } catch (const ab::Error& error) {
    AB_ASSERT(error.kind() == ab::ErrorKind::data);
  }
  return 0;
}
