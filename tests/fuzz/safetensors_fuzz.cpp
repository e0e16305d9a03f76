// SPDX-License-Identifier: MIT
//
// Any bytes are either a safetensors file or one Error(checkpoint), without reading outside of them and
// without more memory than they have bytes for.
#include "engine/io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
  try {
    const ab::TensorFile content = ab::parse_safetensors({bytes, count}, "fuzz.safetensors");
    std::size_t held = 0;
    for (const ab::NamedTensor& tensor : content.tensors) held += tensor.value.bytes();
    AB_ASSERT(held <= count);
  } catch (const ab::Error& error) {
    AB_ASSERT(error.kind() == ab::ErrorKind::checkpoint);
  }
  return 0;
}
