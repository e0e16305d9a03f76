// SPDX-License-Identifier: MIT
//
// Any text is either one Error(config) or settings that to_toml() writes so that they are read as the same.
#include "apps/settings/config.h"
#include "engine/backend/cpu/gemm.h"
#include "engine/core/check.h"

/// As where the processor does not multiply bfloat16.
const char* ab::cpu::native_bfloat16() { return nullptr; }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  const std::string text(reinterpret_cast<const char*>(bytes), count);
  const auto read = [](const std::string& toml) {
    return ab::to_toml(ab::resolve_config_text({}, toml, "fuzz.toml", ab::ConfigUse::plan));
  };
  std::string saved;
  try {
    saved = read(text);
  } catch (const ab::Error& error) {
    AB_ASSERT(error.kind() == ab::ErrorKind::config);
    return 0;
  }
  AB_ASSERT(read(saved) == saved);
  return 0;
}
