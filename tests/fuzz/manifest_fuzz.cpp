// SPDX-License-Identifier: MIT
//
// Any text is either one Error(checkpoint) or the manifest that we would write for what was read from it.
#include "engine/io/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  const std::string text(reinterpret_cast<const char*>(bytes), count);
  try {
    const ab::Manifest manifest = ab::parse_manifest(text, "fuzz.json");
    AB_ASSERT(ab::to_json(manifest) == text && manifest.world_size() > 0);
  } catch (const ab::Error& error) {
    AB_ASSERT(error.kind() == ab::ErrorKind::checkpoint);
  }
  return 0;
}
